# NVML without a GPU: the functions and numbers of the real package that we use, over GPUs that a test
# describes. What a test lists as unsupported raises as the driver would.
# ruff: noqa: N802, N815  the package's own names
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value


@dataclass(slots=True)
class FakeGpu:
    uuid: str
    name: str = "NVIDIA H200"
    utilization_percent: int = 40
    memory_used_bytes: int = 3 << 30
    memory_total_bytes: int = 4 << 30
    temperature_c: int = 61
    power_mw: int = 350_000
    energy_mj: int = 7_000_000
    clocks_mhz: dict[int, int] = field(default_factory=lambda: {1: 1980, 2: 3201})
    throttle_bits: int = 0
    throttled_ns: dict[int, int] = field(default_factory=dict)  # by performance policy
    ecc: dict[int, int] = field(default_factory=dict)
    pcie_replays: int = 0
    fields: dict[int, int] = field(default_factory=dict)
    process_bytes: dict[int, int | None] = field(default_factory=dict)
    unsupported: set[str] = field(default_factory=set)
    is_lost: bool = False


class FakeNvml:
    """Stands in for the module `pynvml`."""

    NVMLError = NVMLError
    NVML_SUCCESS = 0
    NVML_ERROR_NOT_SUPPORTED = 3
    NVML_ERROR_NO_PERMISSION = 4
    NVML_ERROR_FUNCTION_NOT_FOUND = 13
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
    NVML_TEMPERATURE_GPU = 0
    NVML_PERF_POLICY_POWER, NVML_PERF_POLICY_THERMAL, NVML_PERF_POLICY_SYNC_BOOST = 0, 1, 2
    NVML_PERF_POLICY_BOARD_LIMIT, NVML_PERF_POLICY_RELIABILITY = 3, 5
    NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_AGGREGATE_ECC = 0, 1, 1
    NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = 0, 1
    NVML_FI_DEV_PCIE_COUNT_TX_BYTES, NVML_FI_DEV_PCIE_COUNT_RX_BYTES = 197, 198
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 138, 139
    NVML_VALUE_TYPE_UNSIGNED_INT, NVML_VALUE_TYPE_UNSIGNED_LONG, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG = 1, 2, 3
    nvmlClocksThrottleReasonSwPowerCap = 0x4
    nvmlClocksThrottleReasonHwSlowdown = 0x8
    nvmlClocksThrottleReasonSyncBoost = 0x10
    nvmlClocksThrottleReasonSwThermalSlowdown = 0x20
    nvmlClocksThrottleReasonHwThermalSlowdown = 0x40
    nvmlClocksThrottleReasonHwPowerBrakeSlowdown = 0x80

    def __init__(self, *gpus: FakeGpu) -> None:
        self.gpus = gpus
        self.calls: list[str] = []

    def nvmlInit(self) -> None:
        self.calls.append("nvmlInit")

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        return self.gpus[index]

    def __getattr__(self, name: str) -> Any:
        answer = ANSWERS.get(name)
        if answer is None:
            raise AttributeError(name)

        def call(gpu: FakeGpu, *words: Any) -> Any:
            self.calls.append(name)
            if gpu.is_lost:
                raise NVMLError(self.NVML_ERROR_GPU_IS_LOST)
            if name in gpu.unsupported:
                raise NVMLError(self.NVML_ERROR_NOT_SUPPORTED)
            return answer(gpu, *words)

        return call


def _read_fields(gpu: FakeGpu, wanted: list[Any]) -> list[SimpleNamespace]:
    values = []
    for field_id in wanted:
        number = field_id[0] if isinstance(field_id, tuple) else field_id
        is_told = number in gpu.fields
        value = SimpleNamespace(ullVal=gpu.fields.get(number, 0))
        values.append(SimpleNamespace(nvmlReturn=0 if is_told else 3, valueType=3, value=value))
    return values


ANSWERS: dict[str, Any] = {
    "nvmlDeviceGetUUID": lambda gpu: gpu.uuid,
    "nvmlDeviceGetName": lambda gpu: gpu.name,
    "nvmlDeviceGetUtilizationRates": lambda gpu: SimpleNamespace(gpu=gpu.utilization_percent, memory=0),
    "nvmlDeviceGetMemoryInfo": lambda gpu: SimpleNamespace(
        used=gpu.memory_used_bytes, total=gpu.memory_total_bytes
    ),
    "nvmlDeviceGetTemperature": lambda gpu, _sensor: gpu.temperature_c,
    "nvmlDeviceGetPowerUsage": lambda gpu: gpu.power_mw,
    "nvmlDeviceGetTotalEnergyConsumption": lambda gpu: gpu.energy_mj,
    "nvmlDeviceGetClockInfo": lambda gpu, clock: gpu.clocks_mhz[clock],
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda gpu: gpu.throttle_bits,
    "nvmlDeviceGetViolationStatus": lambda gpu, policy: SimpleNamespace(
        violationTime=gpu.throttled_ns.get(policy, 0)
    ),
    "nvmlDeviceGetTotalEccErrors": lambda gpu, error, _counter: gpu.ecc.get(error, 0),
    "nvmlDeviceGetPcieReplayCounter": lambda gpu: gpu.pcie_replays,
    "nvmlDeviceGetPcieThroughput": lambda _gpu, direction: 100 + direction,
    "nvmlDeviceGetFieldValues": _read_fields,
    "nvmlDeviceGetComputeRunningProcesses": lambda gpu: [
        SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in gpu.process_bytes.items()
    ],
}
