# `doctor`: what is available on this machine, one line each, with the mend. Looks and reports;
# starts nothing, changes nothing, loads no GPU library.
import argparse
import ctypes.util
import importlib.metadata
import importlib.util
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from otel_llmprism import __version__
from otel_llmprism.cli.extras import PACKAGES, list_missing
from otel_llmprism.native.library import load_library

HELP = "what is available here, one line each, with the mend"
EXAMPLE = "otel-llmprism doctor"

_NEEDED_SHM_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Report:
    """One line: `level` is ok, note (works without) or fail (something asked for cannot work)."""

    level: str
    what: str
    says: str
    mend: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--endpoint", help="OTLP endpoint to try (default: OTEL_EXPORTER_OTLP_ENDPOINT)")


def run(args: argparse.Namespace) -> int:
    """Print one line per check; 1 when something that was asked for cannot work."""
    reports = [report for check in CHECKS for report in check()]
    reports += check_endpoint(args.endpoint or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", ""))
    width = max(len(report.what) for report in reports)
    for report in reports:
        mend = f"; {report.mend}" if report.mend else ""
        print(f"{report.level:4}  {report.what:{width}}  {report.says}{mend}")
    return 1 if any(report.level == "fail" for report in reports) else 0


def check_versions() -> Iterator[Report]:
    yield Report("ok", "otel-llmprism", __version__)
    if os.environ.get("OTEL_LLMPRISM_DISABLED", "").lower() == "true":
        yield Report(
            "note", "switch", "OTEL_LLMPRISM_DISABLED=true: nothing of ours runs", "unset it to record"
        )
    try:
        found = importlib.metadata.version("opentelemetry-instrumentation")
    except importlib.metadata.PackageNotFoundError:
        yield Report(
            "note",
            "opentelemetry-instrument",
            "not installed",
            "pip install 'opentelemetry-instrumentation>=0.63b0' to attach without code changes",
        )
        return
    yield Report("ok", "opentelemetry-instrument", found)


def check_native() -> Iterator[Report]:
    if load_library() is not None:
        yield Report("ok", "native library", "loaded")
        return
    if os.environ.get("OTEL_LLMPRISM_NATIVE", "on") == "off":
        yield Report(
            "note",
            "native library",
            "switched off; the Python twins work, slower",
            "unset OTEL_LLMPRISM_NATIVE",
        )
        return
    mend = "reinstall to build it with g++ (in a clone: make native)"
    if shutil.which("g++") is None:
        mend = "reinstall where g++ is present"
    yield Report(
        "note", "native library", "absent or of another version; the Python twins work, slower", mend
    )


def check_extras() -> Iterator[Report]:
    for extra in PACKAGES:
        missing = list_missing(extra)
        if missing:
            mend = f"pip install 'otel-llmprism[{extra}]'"
            yield Report("note", f"{extra} extra", f"missing {', '.join(missing)}", mend)
        else:
            yield Report("ok", f"{extra} extra", "installed")


def check_shared_memory() -> Iterator[Report]:
    folder = Path("/dev/shm")  # noqa: S108 - where rings live; only looked at here
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        yield Report(
            "note", "shared memory", f"{folder} is not writable", "rings fall back to the runtime folder"
        )
        return
    free = shutil.disk_usage(folder).free
    if free < _NEEDED_SHM_BYTES:
        says = f"{free >> 20} MiB free in {folder}, {_NEEDED_SHM_BYTES >> 20} MiB wanted for rings"
        yield Report("note", "shared memory", says, "enlarge it (in Kubernetes: an emptyDir, medium Memory)")
        return
    yield Report("ok", "shared memory", f"{free >> 20} MiB free in {folder}")


def check_runtime_folder() -> Iterator[Report]:
    base = os.environ.get("XDG_RUNTIME_DIR")
    if base and not os.access(base, os.W_OK):
        yield Report("note", "runtime folder", f"{base} is not writable", "unset or correct XDG_RUNTIME_DIR")
    else:
        yield Report("ok", "runtime folder", base or "XDG_RUNTIME_DIR is unset; a private folder is made")


def check_gpu() -> Iterator[Report]:
    if not Path("/dev/nvidiactl").exists():
        yield Report("note", "GPU", "no NVIDIA device here; host-side records only")
        return
    yield Report("ok", "GPU", "NVIDIA device present")
    for what, library in (("NVML", "nvidia-ml"), ("CUPTI", "cupti")):
        found = ctypes.util.find_library(library)
        if found:
            yield Report("ok", what, found)
        else:
            yield Report(
                "note", what, "not on the library path", "GPU samples or kernels of the engine's own wheel"
            )


def check_pressure() -> Iterator[Report]:
    if Path("/proc/pressure/cpu").exists():
        yield Report("ok", "pressure (PSI)", "readable")
    else:
        mend = "boot with psi=1 to tell CPU, memory and disk pressure apart"
        yield Report("note", "pressure (PSI)", "not offered by this kernel", mend)


def check_ptrace() -> Iterator[Report]:
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    value = scope.read_text(encoding="ascii").strip() if scope.exists() else "0"
    if value in {"0", "1"} or os.geteuid() == 0:
        yield Report("ok", "ptrace", f"scope {value}")
    else:
        yield Report(
            "note", "ptrace", f"scope {value}: no attach from outside", "start under opentelemetry-instrument"
        )


def check_endpoint(endpoint: str) -> Iterator[Report]:
    """Try to connect to the OTLP endpoint, two seconds at most."""
    if not endpoint:
        yield Report(
            "note",
            "OTLP endpoint",
            "OTEL_EXPORTER_OTLP_ENDPOINT is unset; localhost is the default",
            "set it to your Collector",
        )
        return
    parts = urlsplit(endpoint if "//" in endpoint else f"grpc://{endpoint}")
    default_port = 4318 if parts.scheme in {"http", "https"} else 4317
    try:
        address = (parts.hostname or "", parts.port or default_port)
    except ValueError as error:
        yield Report("fail", "OTLP endpoint", f"{endpoint}: {error}", "write it as http://host:4318")
        return
    try:
        socket.create_connection(address, timeout=2).close()
    except OSError as error:
        says = f"{address[0]}:{address[1]} does not answer ({error.strerror or error})"
        yield Report("fail", "OTLP endpoint", says, "start the Collector there or correct the address")
    else:
        yield Report("ok", "OTLP endpoint", f"{address[0]}:{address[1]} accepts connections")


CHECKS: tuple[Callable[[], Iterator[Report]], ...] = (
    check_versions,
    check_native,
    check_extras,
    check_shared_memory,
    check_runtime_folder,
    check_gpu,
    check_pressure,
    check_ptrace,
)
