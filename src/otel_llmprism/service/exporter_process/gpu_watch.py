# The GPUs of this node, read by a thread of its own: NVML hangs with a GPU that is broken, and the rings must
# be drained meanwhile. The latest readings come out, as samples of the ledger and as metrics.
import threading
from collections.abc import Callable, Iterable, Sequence

from otel_llmprism.exporters.otlp_metrics import NumberReading
from otel_llmprism.receivers.host_gpu import GpuReading, GpuSampler, list_gpus, load_nvml
from otel_llmprism.receivers.host_reading import HostReading
from otel_llmprism.semconv import gpu as names

# The attribute that a reading's detail is the value of.
_DETAILS = {
    names.GPU_UTILIZATION: names.HW_GPU_TASK,
    names.GPU_IO: names.IO_DIRECTION,
    names.GPU_NVLINK_IO: names.IO_DIRECTION,
    names.GPU_PCIE_THROUGHPUT: names.IO_DIRECTION,
    names.HW_ERRORS: names.ERROR_TYPE,
    names.GPU_CLOCK: "clock",
    names.GPU_THROTTLED: "reason",
    names.GPU_THROTTLED_TIME: "reason",
}
_COUNTERS = {
    names.GPU_IO,
    names.GPU_NVLINK_IO,
    names.HW_ERRORS,
    names.HW_ENERGY,
    names.GPU_THROTTLED_TIME,
}
_UP_DOWN = {names.GPU_MEMORY_USAGE, names.GPU_MEMORY_LIMIT}
_OF_ALL_HARDWARE = {names.HW_ERRORS, names.HW_POWER, names.HW_ENERGY, names.HW_TEMPERATURE}


class GpuWatch:
    """Starts reading at once; `take` never waits."""

    def __init__(self, read: Callable[[], list[GpuReading]], every_s: float) -> None:
        self._read = read
        self._every_s = every_s
        self._latest: list[GpuReading] = []
        self._is_fresh = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gpus", daemon=True)
        self._thread.start()

    def take(self) -> list[GpuReading]:
        """Return the latest readings; none when there are no new ones since the last call."""
        is_fresh, self._is_fresh = self._is_fresh, False
        return self._latest if is_fresh else []

    def read_metrics(self) -> list[NumberReading]:
        """Return the latest readings as metrics; those of processes stay in the ledger."""
        return to_metrics(self._latest)

    def close(self) -> None:
        """Stop reading; a call that hangs is left behind."""
        self._stop.set()
        self._thread.join(timeout=0.2)

    def _run(self) -> None:
        while True:
            try:
                self._latest, self._is_fresh = self._read(), True
            except Exception:  # noqa: BLE001  a driver that went away: the rest of the exporter goes on
                self._latest = []
            if self._stop.wait(self._every_s):
                return


def start_gpu_watch(visible: str | None, every_s: float) -> GpuWatch | None:
    """Watch the GPUs that the engine may use; None where NVML or a GPU is absent."""
    nvml = load_nvml()
    if nvml is None:
        return None
    try:
        gpus = list_gpus(nvml, visible)
    except nvml.NVMLError:
        return None
    return GpuWatch(GpuSampler(nvml, gpus).read, every_s) if gpus else None


def to_host_readings(readings: Iterable[GpuReading]) -> list[HostReading]:
    """Return samples for the ledger: name/UUID/detail."""
    return [
        HostReading(one.name, f"{one.gpu}/{one.detail}".rstrip("/"), one.value, one.pid) for one in readings
    ]


def to_metrics(readings: Sequence[GpuReading]) -> list[NumberReading]:
    """Return metrics by `hw.id`."""
    return [_to_metric(one) for one in readings if not one.pid]


def _to_metric(one: GpuReading) -> NumberReading:
    attributes: dict[str, str | int | float | bool] = {names.HW_ID: one.gpu, names.HW_MODEL: one.model}
    if one.name in _OF_ALL_HARDWARE:
        attributes[names.HW_TYPE] = "gpu"
    if one.detail:
        attributes[_DETAILS[one.name]] = one.detail
    return NumberReading(
        one.name,
        names.UNITS[one.name],
        attributes,
        one.value,
        is_counter=one.name in _COUNTERS or one.name in _UP_DOWN,
        is_monotonic=one.name not in _UP_DOWN,
    )
