# NVML -> what each GPU of this node does, in the units and under the names of semconv/gpu.py. The library
# comes in; what a GPU or driver does not tell is asked once and left out. A call may hang with a broken GPU:
# whoever calls does it from a thread of its own.
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

from otel_llmprism.semconv import gpu as names

_KIB, _MHZ = 1024, 1_000_000
_ALL_LINKS = 0xFFFFFFFF
_CLOCKS = {"sm": "NVML_CLOCK_SM", "memory": "NVML_CLOCK_MEM"}
_THROTTLE_BITS = {
    "power_cap": "nvmlClocksThrottleReasonSwPowerCap",
    "hardware": "nvmlClocksThrottleReasonHwSlowdown",
    "sync_boost": "nvmlClocksThrottleReasonSyncBoost",
    "thermal": "nvmlClocksThrottleReasonSwThermalSlowdown",
    "hardware_thermal": "nvmlClocksThrottleReasonHwThermalSlowdown",
    "power_brake": "nvmlClocksThrottleReasonHwPowerBrakeSlowdown",
}
_THROTTLE_TIMES = {
    "power_cap": "NVML_PERF_POLICY_POWER",
    "thermal": "NVML_PERF_POLICY_THERMAL",
    "sync_boost": "NVML_PERF_POLICY_SYNC_BOOST",
    "board_limit": "NVML_PERF_POLICY_BOARD_LIMIT",
    "reliability": "NVML_PERF_POLICY_RELIABILITY",
}
_ECC = {"corrected": "NVML_MEMORY_ERROR_TYPE_CORRECTED", "uncorrected": "NVML_MEMORY_ERROR_TYPE_UNCORRECTED"}
_PCIE_FIELDS = {"transmit": "NVML_FI_DEV_PCIE_COUNT_TX_BYTES", "receive": "NVML_FI_DEV_PCIE_COUNT_RX_BYTES"}
_PCIE_RATES = {"transmit": "NVML_PCIE_UTIL_TX_BYTES", "receive": "NVML_PCIE_UTIL_RX_BYTES"}
_NVLINK_FIELDS = {
    "transmit": "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX",
    "receive": "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX",
}


class GpuReading(NamedTuple):
    """`detail` says which direction, reason, clock or task; `pid` of whom, 0 for the GPU as a whole."""

    gpu: str  # its UUID, `hw.id`
    model: str
    name: str
    detail: str
    value: float
    pid: int = 0


class Gpu(NamedTuple):
    handle: Any
    number: int
    uuid: str
    model: str


def load_nvml() -> Any | None:
    """Return NVML, ready for use; None when package, library or driver is absent."""
    try:
        nvml = import_module("pynvml")
        nvml.nvmlInit()
    except Exception:  # noqa: BLE001  an import or one of NVML's own errors; doctor says which
        return None
    return nvml


def list_gpus(nvml: Any, visible: str | None = None) -> list[Gpu]:
    """Return the node's GPUs, or those that CUDA_VISIBLE_DEVICES (`visible`) names."""
    gpus = []
    for index in range(nvml.nvmlDeviceGetCount()):
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        gpus.append(Gpu(handle, index, nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetName(handle)))
    if visible is None:
        return gpus
    words = [word.strip() for word in visible.split(",") if word.strip()]
    return [gpu for gpu in gpus if any(_is_named(gpu, word) for word in words)]


def _is_named(gpu: Gpu, word: str) -> bool:
    return str(gpu.number) == word or (word.startswith("GPU-") and gpu.uuid.startswith(word))


class GpuSampler:
    """Reads a fixed set of GPUs; what one of them does not support is not asked again."""

    def __init__(self, nvml: Any, gpus: Iterable[Gpu]) -> None:
        self._nvml = nvml
        self._gpus = list(gpus)
        self._unsupported: set[tuple[str, str]] = set()

    def read(self) -> list[GpuReading]:
        """Return what every GPU tells now; nothing of a GPU that is lost."""
        return [reading for gpu in self._gpus for reading in self._read_gpu(gpu)]

    def _read_gpu(self, gpu: Gpu) -> Iterator[GpuReading]:
        for query in (_read_load, _read_memory, _read_heat, _read_processes, _read_throttle_reasons):
            yield from self._ask(gpu, query.__name__, query)
        for detail, constant in _CLOCKS.items():
            yield from self._ask(gpu, f"clock {detail}", _read_clock, detail, constant)
        for detail, constant in _THROTTLE_TIMES.items():
            yield from self._ask(gpu, f"throttled {detail}", _read_throttled_time, detail, constant)
        for detail, constant in _ECC.items():
            yield from self._ask(gpu, f"ecc {detail}", _read_ecc, detail, constant)
        yield from self._ask(gpu, "energy", _read_energy)
        yield from self._ask(gpu, "power", _read_power)
        yield from self._ask(gpu, "pcie replays", _read_pcie_replays)
        for detail in _PCIE_FIELDS:
            yield from self._ask(gpu, f"nvlink {detail}", _read_nvlink, detail)
            if not self._is_unsupported(gpu, f"pcie {detail}"):
                yield from self._ask(gpu, f"pcie {detail}", _read_pcie_bytes, detail)
            else:
                yield from self._ask(gpu, f"pcie rate {detail}", _read_pcie_rate, detail)

    def _ask(
        self, gpu: Gpu, what: str, query: Callable[..., Iterator[tuple[str, str, float, int]]], *words: str
    ) -> list[GpuReading]:
        if self._is_unsupported(gpu, what):
            return []
        try:
            found = list(query(self._nvml, gpu.handle, *words))
        except _NotToldError:
            self._unsupported.add((gpu.uuid, what))
            return []
        except self._nvml.NVMLError as error:
            if getattr(error, "value", 0) in {
                self._nvml.NVML_ERROR_NOT_SUPPORTED,
                self._nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
                self._nvml.NVML_ERROR_NO_PERMISSION,
            }:
                self._unsupported.add((gpu.uuid, what))
            return []
        return [
            GpuReading(gpu.uuid, gpu.model, name, detail, value, pid) for name, detail, value, pid in found
        ]

    def _is_unsupported(self, gpu: Gpu, what: str) -> bool:
        return (gpu.uuid, what) in self._unsupported


_Found = Iterator[tuple[str, str, float, int]]


class _NotToldError(Exception):
    """The driver has no such field."""


def _read_load(nvml: Any, handle: Any) -> _Found:
    yield names.GPU_UTILIZATION, "general", nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100, 0


def _read_memory(nvml: Any, handle: Any) -> _Found:
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    yield names.GPU_MEMORY_USAGE, "", memory.used, 0
    yield names.GPU_MEMORY_LIMIT, "", memory.total, 0
    if memory.total:
        yield names.GPU_MEMORY_UTILIZATION, "", memory.used / memory.total, 0


def _read_heat(nvml: Any, handle: Any) -> _Found:
    yield names.HW_TEMPERATURE, "", nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU), 0


def _read_power(nvml: Any, handle: Any) -> _Found:
    yield names.HW_POWER, "", nvml.nvmlDeviceGetPowerUsage(handle) / 1e3, 0  # of mW


def _read_energy(nvml: Any, handle: Any) -> _Found:
    yield names.HW_ENERGY, "", nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3, 0  # of mJ


def _read_clock(nvml: Any, handle: Any, detail: str, constant: str) -> _Found:
    clock_mhz = nvml.nvmlDeviceGetClockInfo(handle, getattr(nvml, constant))
    yield names.GPU_CLOCK, detail, clock_mhz * _MHZ, 0


def _read_throttle_reasons(nvml: Any, handle: Any) -> _Found:
    bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    for detail, constant in _THROTTLE_BITS.items():
        yield names.GPU_THROTTLED, detail, float(bool(bits & getattr(nvml, constant))), 0


def _read_throttled_time(nvml: Any, handle: Any, detail: str, constant: str) -> _Found:
    status = nvml.nvmlDeviceGetViolationStatus(handle, getattr(nvml, constant))
    yield names.GPU_THROTTLED_TIME, detail, status.violationTime / 1e9, 0  # of ns


def _read_ecc(nvml: Any, handle: Any, detail: str, constant: str) -> _Found:
    count = nvml.nvmlDeviceGetTotalEccErrors(handle, getattr(nvml, constant), nvml.NVML_AGGREGATE_ECC)
    yield names.HW_ERRORS, detail, count, 0


def _read_pcie_replays(nvml: Any, handle: Any) -> _Found:
    yield names.HW_ERRORS, "pcie_replay", nvml.nvmlDeviceGetPcieReplayCounter(handle), 0


def _read_pcie_bytes(nvml: Any, handle: Any, detail: str) -> _Found:
    yield names.GPU_IO, detail, _read_field(nvml, handle, getattr(nvml, _PCIE_FIELDS[detail])), 0


def _read_pcie_rate(nvml: Any, handle: Any, detail: str) -> _Found:
    rate_kib_s = nvml.nvmlDeviceGetPcieThroughput(handle, getattr(nvml, _PCIE_RATES[detail]))  # takes 20 ms
    yield names.GPU_PCIE_THROUGHPUT, detail, rate_kib_s * _KIB, 0


def _read_nvlink(nvml: Any, handle: Any, detail: str) -> _Found:
    field = (getattr(nvml, _NVLINK_FIELDS[detail]), _ALL_LINKS)
    yield names.GPU_NVLINK_IO, detail, _read_field(nvml, handle, field) * _KIB, 0


def _read_processes(nvml: Any, handle: Any) -> _Found:
    for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle):
        if process.usedGpuMemory is not None:
            yield names.GPU_PROCESS_MEMORY, "", process.usedGpuMemory, process.pid


def _read_field(nvml: Any, handle: Any, field: Any) -> int:
    (value,) = nvml.nvmlDeviceGetFieldValues(handle, [field])
    if value.nvmlReturn != nvml.NVML_SUCCESS:
        raise _NotToldError
    members = {
        nvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
        nvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    }
    return int(getattr(value.value, members.get(value.valueType, "ullVal")))
