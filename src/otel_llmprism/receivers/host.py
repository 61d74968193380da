# Everything about the host beside one engine, once a second. Knows no clock and no encoding.
from collections.abc import Iterator, Sequence

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
