# Everything about the host beside one engine, as tables of one moment. Knows no clock and no wire.
from collections.abc import Iterator, Sequence

import numpy as np

from otel_llmprism.model.hosts import NO_RANK, HostTables, SampleTable, SeriesTable
from otel_llmprism.receivers.host_cgroup import read_cgroup
from otel_llmprism.receivers.host_cpu import read_cpu
from otel_llmprism.receivers.host_memory import read_memory
from otel_llmprism.receivers.host_pressure import read_pressure
from otel_llmprism.receivers.host_reading import HostReading
from otel_llmprism.receivers.host_threads import read_threads


def read_host(pids: Sequence[int]) -> Iterator[HostReading]:
    """Yield what is readable here; `pids`: the engine's processes, its first one names the cgroup."""
    yield from read_cpu()
    yield from read_memory()
    yield from read_pressure()
    yield from read_threads(pids)
    if pids:
        yield from read_cgroup(pids[0])


def to_host_tables(readings: Sequence[HostReading], time_ns: int) -> HostTables:
    """Return one sample a reading, all of `time_ns` (monotonic)."""
    names = [
        (f"{reading.name}/{reading.instance}" if reading.instance else reading.name).encode()
        for reading in readings
    ]
    count = len(readings)
    return HostTables(
        series=SeriesTable(
            pid=np.array([reading.pid for reading in readings], dtype=np.uint32),
            rank=np.full(count, NO_RANK, dtype=np.uint32),
            name_bytes=np.array([len(name) for name in names], dtype=np.uint16),
        ),
        samples=SampleTable(
            series_row=np.arange(count, dtype=np.uint32),
            time_ns=np.full(count, time_ns, dtype=np.uint64),
            value=np.array([reading.value for reading in readings], dtype=np.float64),
        ),
        names=np.frombuffer(b"".join(names), dtype=np.uint8),
    )
