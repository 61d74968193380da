# Everything beside the engine that the exporter looks at: its processes, host, cgroup and GPUs, each sample
# with the rank it belongs to; and where the exporter itself may run.
import itertools

from otel_llmprism.exporters.otlp_metrics import NumberReading
from otel_llmprism.model.hosts import HostTables
from otel_llmprism.receivers.host import HostSampler, to_host_tables
from otel_llmprism.service.exporter_process.gpu_watch import GpuWatch, to_host_readings
from otel_llmprism.service.exporter_process.placement import Placement
from otel_llmprism.service.exporter_process.rank_places import RankPlaces

_PLACE_EVERY = 10  # samples; threads are bound when an engine starts, and hardly ever later


class HostWatch:
    def __init__(self, placement: Placement, gpus: GpuWatch | None) -> None:
        self._placement = placement
        self._gpus = gpus
        self._places = RankPlaces()
        self._host = HostSampler()
        self._turns = itertools.count()

    def note_slots(self, pid: int, slots: bytes) -> None:
        """Learn from what was drained from the ring of `pid` which rank it is."""
        self._places.note(pid, slots)

    def sample(self, pids: list[int], now_ns: int) -> HostTables:
        """Return the host's numbers of this moment; `pids` are the engine's processes."""
        if next(self._turns) % _PLACE_EVERY == 0:
            self._placement.follow(pids)
        ranks = self._places.label(pids)
        gpus = self._gpus.take() if self._gpus else []
        return to_host_tables([*self._host.read(pids), *to_host_readings(gpus)], now_ns, ranks)

    def read_metrics(self) -> list[NumberReading]:
        """Return the GPUs' metrics; none where there is no GPU."""
        return self._gpus.read_metrics() if self._gpus else []

    def close(self) -> None:
        if self._gpus:
            self._gpus.close()
