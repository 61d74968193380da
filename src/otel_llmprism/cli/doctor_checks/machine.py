# What this machine offers: libraries, shared memory, GPUs, pressure, attach, the endpoint. Looks only.
import ctypes.util
import importlib.util
import os
import platform
import shutil
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from otel_llmprism import __version__
from otel_llmprism.cli.doctor_checks.report import Report
from otel_llmprism.cli.extras import PACKAGES, list_missing
from otel_llmprism.native.control_socket import find_sockets, list_socket_roots
from otel_llmprism.native.extension import load_extension
from otel_llmprism.native.library import load_library
from otel_llmprism.native.run_folder import RuntimeFolderError, check_private, list_runtime_roots
from otel_llmprism.receivers.host_gpu import list_gpus, load_nvml

_NEEDED_SHM_BYTES = 64 << 20
_IN_MEMORY = {"tmpfs", "ramfs", "hugetlbfs"}


def check_versions() -> Iterator[Report]:
    yield Report("ok", "otel-llmprism", f"{__version__}, Python {platform.python_version()}")


def check_native() -> Iterator[Report]:
    yield from _check_built("native library", load_library(), "the Python twins work, slower")


def check_extension() -> Iterator[Report]:
    slower = "hooks work in Python: a step's take several times as long"
    yield from _check_built("hooks extension", load_extension(), slower)


def _check_built(name: str, loaded: object, without: str) -> Iterator[Report]:
    if loaded is not None:
        yield Report("ok", name, "loaded")
        return
    if os.environ.get("OTEL_LLMPRISM_NATIVE", "on") == "off":
        yield Report("note", name, f"switched off; {without}", "unset OTEL_LLMPRISM_NATIVE")
        return
    mend = "reinstall to build it with g++ (in a clone: make native)"
    if shutil.which("g++") is None:
        mend = "reinstall where g++ is present"
    yield Report("note", name, f"absent or of another version; {without}", mend)


def check_extras() -> Iterator[Report]:
    for extra in PACKAGES:
        missing = list_missing(extra)
        if missing:
            mend = f"pip install 'otel-llmprism[{extra}]'"
            yield Report("note", f"{extra} extra", f"missing {', '.join(missing)}", mend)
        else:
            yield Report("ok", f"{extra} extra", "installed")


def check_shared_memory() -> Iterator[Report]:
    """Whether rings have room where they would lie first."""
    root = next(list_runtime_roots(os.environ))
    folder = next(path for path in (root, *root.parents) if path.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        mend = "make it writable; else rings fall back to XDG_RUNTIME_DIR where that is set"
        yield Report("note", "ring folder", f"{folder} is not writable", mend)
        return
    free = shutil.disk_usage(folder).free
    if free < _NEEDED_SHM_BYTES:
        says = f"{free >> 20} MiB free in {folder}, {_NEEDED_SHM_BYTES >> 20} MiB wanted for rings"
        mend = "enlarge it (docker: --shm-size; Kubernetes: an emptyDir, medium Memory)"
        yield Report("note", "ring folder", says, mend)
        return
    kind = find_filesystem(folder)
    if kind not in _IN_MEMORY:
        says, mend = (
            f"{folder} is on {kind}: a step can wait for the disk",
            "choose a tmpfs, such as /dev/shm",
        )
        yield Report("note", "ring folder", says, f"{mend}, by OTEL_LLMPRISM_RUNTIME_DIR")
        return
    yield Report("ok", "ring folder", f"{free >> 20} MiB free in {folder}")


def check_runtime_folder() -> Iterator[Report]:
    base = os.environ.get("XDG_RUNTIME_DIR")
    if base and not os.access(base, os.W_OK):
        yield Report("note", "runtime folder", f"{base} is not writable", "unset or correct XDG_RUNTIME_DIR")
    else:
        yield Report("ok", "runtime folder", base or "XDG_RUNTIME_DIR is unset; a private folder is made")


def check_control_folder() -> Iterator[Report]:
    """Whether an engine could be asked and switched while it runs."""
    roots = list_socket_roots(os.environ)
    existing = [root for root in roots if root.exists()]
    for root in existing:
        try:
            check_private(root)
        except RuntimeFolderError as error:
            yield Report("note", "control sockets", str(error))
            return
    sockets = sum(len(find_sockets(root)) for root in existing)
    yield Report("ok", "control sockets", f"{sockets} in {', '.join(map(str, existing or roots[:1]))}")


def check_gpu() -> Iterator[Report]:
    if not Path("/dev/nvidiactl").exists():
        yield Report("note", "GPU", "no NVIDIA device here; host-side records only")
        return
    yield Report("ok", "GPU", "NVIDIA device present")
    yield from check_nvml()
    found = ctypes.util.find_library("cupti")
    if found:
        yield Report("ok", "CUPTI", found)
    else:
        yield Report("note", "CUPTI", "not on the library path", "kernels come by the engine's own wheel")


def check_nvml() -> Iterator[Report]:
    """Whether the exporter process can read the GPUs."""
    if importlib.util.find_spec("pynvml") is None:
        mend = "pip install 'otel-llmprism[gpu]' where the engine runs"
        yield Report("note", "NVML", "nvidia-ml-py is not installed: no samples of GPUs", mend)
        return
    nvml = load_nvml()
    if nvml is None:
        mend = "install the driver's libnvidia-ml (a container needs NVIDIA_DRIVER_CAPABILITIES=utility)"
        yield Report("note", "NVML", "the driver's library cannot be started: no samples of GPUs", mend)
        return
    gpus = list_gpus(nvml, os.environ.get("CUDA_VISIBLE_DEVICES"))
    models = ", ".join(sorted({gpu.model for gpu in gpus}))
    yield Report("ok", "NVML", f"{len(gpus)} GPUs to watch" + (f" ({models})" if gpus else ""))


def check_pressure() -> Iterator[Report]:
    if Path("/proc/pressure/cpu").exists():
        yield Report("ok", "pressure (PSI)", "readable")
    else:
        mend = "boot with psi=1 to tell CPU, memory and disk pressure apart"
        yield Report("note", "pressure (PSI)", "not offered by this kernel", mend)


def check_attach() -> Iterator[Report]:
    """Whether `attach` could bring us into a process that runs already."""
    scope_file = Path("/proc/sys/kernel/yama/ptrace_scope")
    scope = scope_file.read_text(encoding="ascii").strip() if scope_file.exists() else "0"
    asleep = "start it under opentelemetry-instrument with OTEL_LLMPRISM_MODE=off instead"
    if scope not in {"0", "1"} and os.geteuid() != 0:
        yield Report("note", "attach", f"ptrace scope {scope}: no attach from outside", asleep)
    elif hasattr(sys, "remote_exec"):
        yield Report("ok", "attach", "sys.remote_exec is there, for processes of the same Python version")
    elif shutil.which("gdb"):
        says = "this Python has no sys.remote_exec; gdb is there (attach --allow-ptrace)"
        yield Report("note", "attach", says, asleep)
    else:
        yield Report("note", "attach", "this Python has no sys.remote_exec, and there is no gdb", asleep)


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


def find_filesystem(folder: Path) -> str:
    """Return the type of the file system that a folder lies on, as the kernel names it."""
    best, kind = -1, "an unknown file system"
    for line in Path("/proc/mounts").read_text(encoding="utf-8", errors="replace").splitlines():
        words = line.split()
        if len(words) > 2 and folder.is_relative_to(words[1]) and len(words[1]) >= best:
            best, kind = len(words[1]), words[2]
    return kind
