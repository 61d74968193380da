# Where requests go that a backend refused for good: a bounded folder of private files, with cause and
# time, for a person to list, mend and send again. Nothing behind them waits. Knows no exporter.
import json
import secrets
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from otel_llmprism.model.signals import Signal
from otel_llmprism.native.log_frame import (
    CURRENT_VERSION,
    KIND_DEAD_LETTER,
    SegmentHeader,
    measure_record_header,
)
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.log.disk import Disk
from otel_llmprism.pipeline.log.folder import SEGMENT_SUFFIX, read_header
from otel_llmprism.pipeline.log.reader import LogRecord, SegmentReader
from otel_llmprism.pipeline.log.segment import Segment, SegmentWriter, create_segment
from otel_llmprism.pipeline.loss import count_loss
from otel_llmprism.pipeline.signal_numbers import NUMBERS, SIGNALS
from otel_llmprism.semconv.pipeline import DEAD_LETTERS

MAX_CAUSE_CHARS = 1000


@dataclass(frozen=True, slots=True)
class DeadLettersConfig:
    directory: Path | None = None  # None: nothing is kept, all is counted
    max_bytes: int = 256 << 20
    is_synced: bool = False


@dataclass(frozen=True, slots=True)
class DeadLetter:
    signal: Signal
    payload: bytes
    cause: str  # what the backend said
    written_ns: int  # real time


class DeadLetters:
    """Thread-safe. The first letter makes the folder and one file of this run."""

    def __init__(
        self,
        config: DeadLettersConfig,
        counters: Counters,
        *,
        disk: Disk | None = None,
        realtime_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._config = config
        self._counters = counters
        self._disk = disk or Disk()
        self._realtime_ns = realtime_ns
        self._lock = threading.Lock()
        self._writer: SegmentWriter | None = None

    def write(self, signal: Signal, payload: bytes, cause: str) -> None:
        """Keep a refused request with what the backend said, and count it as lost. Never raises."""
        loss = self._try_write(signal, payload, cause)
        if loss is None:
            self._counters.add(DEAD_LETTERS, signal=signal)
            count_loss(self._counters, "export", "rejected", signal, payload)
        else:
            count_loss(self._counters, "dead_letters", loss, signal, payload)

    def keep(self, signal: Signal, payload: bytes, cause: str) -> bool:
        """Keep a request whose loss the caller counts; False when it could not be kept. Never raises."""
        if self._try_write(signal, payload, cause) is not None:
            return False
        self._counters.add(DEAD_LETTERS, signal=signal)
        return True

    def close(self) -> None:
        """Finish the file of this run; a later letter begins another."""
        with self._lock:
            if self._writer is not None:
                self._writer.seal()
                self._writer.segment.close()
                self._writer = None

    def _try_write(self, signal: Signal, payload: bytes, cause: str) -> str | None:
        """Give None when written, else the cause of the loss."""
        if self._config.directory is None:
            return "not_kept"
        body = _encode(cause, payload)
        try:
            with self._lock:
                used = measure_dead_letters(self._config.directory)
                if used + len(body) + 4 * measure_record_header(CURRENT_VERSION) > self._config.max_bytes:
                    return "full"
                writer = self._writer = self._writer or self._open_writer(self._config.directory)
                now_ns = self._realtime_ns()
                writer.append(NUMBERS[signal], KIND_DEAD_LETTER, body, zlib.crc32(body), now_ns)
                if writer.segment.sync is not None:
                    writer.segment.sync.wait_until(writer.segment.size)
        except OSError:
            self.close()
            return "disk"
        return None

    def _open_writer(self, directory: Path) -> SegmentWriter:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        newest = max((int(path.stem) for path in _list_files(directory)), default=0)
        header = SegmentHeader(CURRENT_VERSION, newest + 1, self._realtime_ns(), secrets.randbits(32))
        path = directory / f"{header.segment_id:016d}{SEGMENT_SUFFIX}"
        return create_segment(path, header, self._disk, is_synced=self._config.is_synced)


def measure_dead_letters(directory: Path) -> int:
    """Bytes of all letters, of this run and of earlier ones."""
    return sum(path.stat().st_size for path in _list_files(directory))


def read_dead_letters(directory: Path) -> Iterator[DeadLetter]:
    """Give every letter, oldest first; what is damaged is stepped over. Safe while letters are written."""
    disk = Disk()
    for path in _list_files(directory):
        header = read_header(path)
        if header is None:
            continue
        reader = SegmentReader(Segment(path, header, path.stat().st_size, disk), disk)
        try:
            while (record := reader.read_next()) is not None:
                letter = _decode(record)
                if letter is not None:
                    yield letter
        finally:
            reader.close()


def _list_files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob(f"*{SEGMENT_SUFFIX}") if path.stem.isdigit())


def _encode(cause: str, payload: bytes) -> bytes:
    why = json.dumps({"cause": cause[:MAX_CAUSE_CHARS]}).encode()
    return len(why).to_bytes(4, "little") + why + payload


def _decode(record: LogRecord) -> DeadLetter | None:
    body = record.payload
    end = 4 + int.from_bytes(body[:4], "little")
    signal = SIGNALS.get(record.signal)
    try:
        why = json.loads(body[4:end])
        if signal is None or record.kind != KIND_DEAD_LETTER:
            return None
        return DeadLetter(signal, body[end:], str(why["cause"]), record.accepted_ns)
    except (ValueError, KeyError, TypeError):
        return None
