# Builds the real programs our tests and benchmarks run against (Collector, telemetrygen, Jaeger v2, an SDK
# client in Go) at pinned versions, with the Go tool chain and its configured module proxy only, into a cache
# outside the clone; prints the folder. Standard library only: runs before anything is installed.
import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
BUILDER_CONFIG = REPOSITORY / "collector-config" / "builder.yaml"
COLLECTOR_PINS = REPOSITORY / "tools" / "collector"
JAEGER_PINS = REPOSITORY / "tools" / "jaeger"
GO_CLIENT = REPOSITORY / "tools" / "go_client"
PINNED = (COLLECTOR_PINS, JAEGER_PINS, GO_CLIENT)

COLLECTOR_VERSION = "0.155.0"
TELEMETRYGEN_VERSION = "0.161.0"
JAEGER_VERSION = "1.76.0"  # this tag's cmd/jaeger is Jaeger v2

BUILDER = f"go.opentelemetry.io/collector/cmd/builder@v{COLLECTOR_VERSION}"
TELEMETRYGEN = (
    f"github.com/open-telemetry/opentelemetry-collector-contrib/cmd/telemetrygen@v{TELEMETRYGEN_VERSION}"
)
JAEGER = "github.com/jaegertracing/jaeger/cmd/jaeger"
JAEGER_VERSION_VARIABLE = "github.com/jaegertracing/jaeger/internal/version.latestVersion"
STRIP = "-s -w"
LOG_TAIL_LINES = 20
FOLDER_FORMAT = 1  # raise when the way of building changes without a pin changing


class BuildError(Exception):
    """What failed and how to mend it, in words for the person at the terminal."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One program: how it is built, and what it says of itself when it is the right one."""

    name: str
    build: Callable[[Path], None]
    ask: tuple[str, ...]
    answer: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--print-dir", action="store_true", help="print the folder and build nothing")
    parser.add_argument("--check", action="store_true", help="run the cached programs and build nothing")
    arguments = parser.parse_args()
    folder = find_tools_folder()
    if arguments.print_dir:
        print(folder)
        return 0
    try:
        if arguments.check:
            faults = [fault for tool in TOOLS if (fault := find_fault(tool, folder))]
            print("\n".join(faults) or folder)
            return 1 if faults else 0
        build_missing(folder)
    except BuildError as error:
        print(f"tools: {error}", file=sys.stderr)
        return 1
    print(folder)
    return 0


def find_tools_folder() -> Path:
    """Return the folder of the programs at these pins: another pin, another folder."""
    versions = f"{FOLDER_FORMAT} {BUILDER} {TELEMETRYGEN} {JAEGER} {JAEGER_VERSION}"
    digest = hashlib.sha256(versions.encode())
    for path in (BUILDER_CONFIG, *(path for folder in PINNED for path in sorted(folder.iterdir()))):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    root = os.environ.get("OTEL_LLMPRISM_TOOLS")
    base = Path(root) if root else cache / "otel-llmprism" / "tools"
    return base / digest.hexdigest()[:16]


def build_missing(folder: Path) -> None:
    """Build what is not in folder or does not answer as the pinned version; safe to run side by side."""
    folder.mkdir(parents=True, exist_ok=True)
    with hold_lock(folder / ".lock"):
        for tool in TOOLS:
            if find_fault(tool, folder) is None:
                report(f"{tool.name}: ready")
                continue
            report(f"{tool.name}: building (minutes when nothing is cached)")
            started = time.monotonic()
            tool.build(folder)
            if fault := find_fault(tool, folder):
                raise BuildError(fault)
            report(f"{tool.name}: built in {time.monotonic() - started:.0f} s")


def find_fault(tool: Tool, folder: Path) -> str | None:
    """Run the program; say what is wrong with it, or None."""
    path = folder / tool.name
    if not path.exists():
        return f"{tool.name} is not built"
    try:
        ran = subprocess.run([path, *tool.ask], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{tool.name} does not run: {error}"
    if ran.returncode or tool.answer not in ran.stdout + ran.stderr:
        return f"{tool.name} does not answer {' '.join(tool.ask)!r} with {tool.answer!r}"
    return None


def build_builder(folder: Path) -> None:
    install_module(BUILDER, folder)


def build_telemetrygen(folder: Path) -> None:
    install_module(TELEMETRYGEN, folder)


def build_collector(folder: Path) -> None:
    """Let the builder write the sources, then build them at our pinned modules."""
    sources = fresh_folder(folder / "collector-src")
    config = BUILDER_CONFIG.read_text().replace("dist:\n", "dist:\n  output_path: .\n", 1)
    (sources / "builder.yaml").write_text(config)
    generate = [
        str(folder / "builder"),
        "--config",
        "builder.yaml",
        "--skip-get-modules",
        "--skip-compilation",
    ]
    run_logged("builder", generate, sources, {}, folder)
    for pin in ("go.mod", "go.sum"):
        shutil.copy(COLLECTOR_PINS / pin, sources / pin)
    build_package(".", "otelcol-llmprism", sources, STRIP, folder)
    shutil.rmtree(sources)


def build_jaeger(folder: Path) -> None:
    sources = fresh_folder(folder / "jaeger-src")
    for pin in ("go.mod", "go.sum"):
        shutil.copy(JAEGER_PINS / pin, sources / pin)
    flags = f"{STRIP} -X {JAEGER_VERSION_VARIABLE}=v{JAEGER_VERSION}"
    build_package(JAEGER, "jaeger", sources, flags, folder)
    shutil.rmtree(sources)


def build_go_client(folder: Path) -> None:
    build_package(".", "go-client", GO_CLIENT, STRIP, folder)


def install_module(module: str, folder: Path) -> None:
    command = [find_go(), "install", "-trimpath", "-ldflags", STRIP, module]
    name = module.rpartition("/")[2].partition("@")[0]
    run_logged(name, command, folder, {"GOBIN": str(folder)}, folder)


def build_package(package: str, name: str, sources: Path, ldflags: str, folder: Path) -> None:
    """Build to a name beside the final one and rename, so that a half-written program is never found."""
    part = folder / f"{name}.part"
    command = [
        find_go(),
        "build",
        "-mod=readonly",
        "-trimpath",
        "-ldflags",
        ldflags,
        "-o",
        str(part),
        package,
    ]
    run_logged(name, command, sources, {}, folder)
    part.replace(folder / name)


def find_go() -> str:
    found = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    if found is None:
        raise BuildError("the Go tool chain is missing: install Go 1.26 or newer and put `go` on PATH")
    return found


def run_logged(
    name: str, command: Sequence[str], where: Path, environment: dict[str, str], folder: Path
) -> None:
    """Run politely (nice), log to NAME.log in folder, and show the log's end when it fails."""
    log = folder / f"{name}.log"
    surroundings = os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"} | environment
    polite = ["nice", "-n", "10", *command] if shutil.which("nice") else command
    with log.open("wb") as out:
        ran = subprocess.run(
            polite, cwd=where, env=surroundings, stdout=out, stderr=subprocess.STDOUT, check=False
        )
    if ran.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
        raise BuildError(f"building {name} failed (whole log: {log}; is the module proxy reachable?)\n{tail}")


def fresh_folder(path: Path) -> Path:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Wait for, then hold, the folder's lock; the kernel frees it should we die."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("waiting for another build of the same tools")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def report(line: str) -> None:
    print(f"tools: {line}", file=sys.stderr, flush=True)


TOOLS = (
    Tool("builder", build_builder, ("version",), f"v{COLLECTOR_VERSION}"),
    Tool("otelcol-llmprism", build_collector, ("--version",), COLLECTOR_VERSION),
    Tool("telemetrygen", build_telemetrygen, ("--help",), "Telemetrygen simulates"),
    Tool("go-client", build_go_client, ("--version",), "go-client of the OpenTelemetry Go SDK"),
    Tool("jaeger", build_jaeger, ("version",), f"v{JAEGER_VERSION}"),
)

if __name__ == "__main__":
    sys.exit(main())
