# Everything about the host beside one engine, as tables of one moment. Knows no clock and no wire.
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from otel_llmprism.model.hosts import NO_RANK, HostTables, SampleTable, SeriesTable
from otel_llmprism.receivers.host_cgroup import read_cgroup
from otel_llmprism.receivers.host_cpu import read_cpu
from otel_llmprism.receivers.host_memory import read_memory
from otel_llmprism.receivers.host_pressure import read_pressure
from otel_llmprism.receivers.host_processes import read_processes
from otel_llmprism.receivers.host_reading import HostReading
from otel_llmprism.receivers.host_threads import ThreadSampler


class HostSampler:
    """Reads what is readable here; remembers only which threads are busy."""

    def __init__(self) -> None:
        self._threads = ThreadSampler()

    def read(self, pids: Sequence[int]) -> Iterator[HostReading]:
        """Yield the host's numbers and those of `pids`, the engine's; the first one names the cgroup."""
        yield from read_cpu()
        yield from read_memory()
        yield from read_pressure()
        yield from read_processes(pids)
        yield from self._threads.read(pids)
        if pids:
            yield from read_cgroup(pids[0])


def to_host_tables(
    readings: Sequence[HostReading], time_ns: int, ranks: Mapping[int, int] | None = None
) -> HostTables:
    """Return one sample a reading, all of `time_ns` (monotonic); `ranks` by pid."""
    ranks = ranks or {}
    names = [
        (f"{reading.name}/{reading.instance}" if reading.instance else reading.name).encode()
        for reading in readings
    ]
    count = len(readings)
    return HostTables(
        series=SeriesTable(
            pid=np.array([reading.pid for reading in readings], dtype=np.uint32),
            rank=np.array([ranks.get(reading.pid, NO_RANK) for reading in readings], dtype=np.uint32),
            name_bytes=np.array([len(name) for name in names], dtype=np.uint16),
        ),
        samples=SampleTable(
            series_row=np.arange(count, dtype=np.uint32),
            time_ns=np.full(count, time_ns, dtype=np.uint64),
            value=np.array([reading.value for reading in readings], dtype=np.float64),
        ),
        names=np.frombuffer(b"".join(names), dtype=np.uint8),
    )
