# The rings of one run folder: new ones are found, all are drained, finished ones removed. What the
# writers dropped and how long their hooks took is counted.
import logging
from collections.abc import Iterator
from pathlib import Path

from otel_llmprism.native.ring import RingError, RingReader
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv.metric import HOOK_TIME, LOST

_MAX_SLOTS = 1 << 16  # taken from one ring at a time: bounds what a drain copies
_log = logging.getLogger("otel_llmprism")


class RingWatch:
    def __init__(self, folder: Path, counters: Counters) -> None:
        self._folder = folder
        self._counters = counters
        self._readers: dict[int, RingReader] = {}
        self._dropped: dict[int, int] = {}
        self._hook_ns: dict[int, int] = {}
        self._known: set[Path] = set()
        self._refused: set[Path] = set()

    def find_rings(self) -> None:
        """Open rings that are new in the folder."""
        for path in sorted(self._folder.glob("*.ring")):
            if path in self._known:
                continue
            try:
                self._readers[len(self._known)] = RingReader.open(path)
            except RingError as error:
                self._note_refused(path, str(error))
                continue  # its writer may be just making it: looked at again next time
            self._known.add(path)

    def drain(self) -> Iterator[tuple[int, bytes]]:
        """Yield a source number and its published slots, for every ring that has some."""
        for source, reader in self._readers.items():
            self._count_told(source, reader)
            slots = reader.drain(_MAX_SLOTS)
            if slots:
                yield source, slots

    def remove_finished(self) -> None:
        """Remove rings whose writer closed them or died, once they are empty."""
        for source, reader in list(self._readers.items()):
            if reader.is_finished() and reader.pending == 0:
                self._count_told(source, reader)
                reader.close(remove=True)
                del self._readers[source]

    def list_writers(self) -> list[int]:
        """Return the pids of the processes that write."""
        return sorted({reader.header.writer_pid for reader in self._readers.values()})

    def find_writer(self, source: int) -> int:
        """Return the pid of the process that writes ring `source`."""
        return self._readers[source].header.writer_pid

    @property
    def is_over(self) -> bool:
        """Whether there were rings and none is left."""
        return bool(self._known) and not self._readers

    def close(self) -> None:
        """Let go of rings that are still written to; another exporter may take over."""
        for reader in self._readers.values():
            reader.close()
        self._readers.clear()

    def _count_told(self, source: int, reader: RingReader) -> None:
        dropped = reader.dropped
        if fresh := dropped - self._dropped.get(source, 0):
            self._dropped[source] = dropped
            self._counters.add(LOST, fresh, stage="ring", cause="full")
        hook_ns, told_ns = reader.hook_time_ns, self._hook_ns.get(source, 0)
        if hook_ns > told_ns:
            self._hook_ns[source] = hook_ns
            self._counters.add(HOOK_TIME, (hook_ns - told_ns) / 1e9)

    def _note_refused(self, path: Path, why: str) -> None:
        if path not in self._refused:
            self._refused.add(path)
            _log.warning("llmprism exporter: %s", why)
