# Ledger records -> segment files on the node, within a disk bound: the oldest segment goes first, counted.
# A disk that is full or gone costs records, counted, never the engine's telemetry.
import errno
import os
from dataclasses import dataclass
from pathlib import Path

from otel_llmprism.exporters.otlp_logs import LedgerRecord
from otel_llmprism.native.ledger_frames import SegmentError, SegmentOwner, pack_frame, pack_header
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv.metric import LOST

SUFFIX = ".ledger"
_STAGE = "ledger_files"


@dataclass(frozen=True, slots=True)
class LedgerFilesConfig:
    folder: Path
    max_bytes: int
    segment_bytes: int = 32 << 20


class LedgerFiles:
    """One per engine run; several may share a folder, whose bound then holds for all together."""

    def __init__(self, config: LedgerFilesConfig, owner: SegmentOwner, counters: Counters) -> None:
        self._config = config
        self._owner = owner
        self._counters = counters
        self._segment_bytes = max(1, min(config.segment_bytes, config.max_bytes // 4))
        self._path: Path | None = None
        self._descriptor = -1
        self._size = 0

    def append(self, record: LedgerRecord) -> bool:
        """Write one record; False, and counted, when the disk did not take it. Never raises OSError."""
        frame = pack_frame(
            record.event_name,
            record.seq,
            record.time_ns,
            record.body,
            first_step=record.first_step,
            last_step=record.last_step,
        )
        try:
            if self._descriptor < 0 or self._size + len(frame) > self._segment_bytes:
                self._open_next()
            self._write(frame)
        except (OSError, SegmentError) as error:
            cause = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "refused"
            self._counters.add(LOST, stage=_STAGE, cause=cause.lower().replace(" ", "_"))
            return False
        return True

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _open_next(self) -> None:
        self.close()
        folder = self._config.folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._drop_oldest(self._config.max_bytes - self._segment_bytes)
        number = 1 + max(
            (_read_number(path) for path in folder.glob(f"{self._owner.run}-*{SUFFIX}")), default=0
        )
        path = folder / f"{self._owner.run}-{number:06}{SUFFIX}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(path, flags, 0o600)
        self._path, self._size = path, 0
        self._write(pack_header(self._owner))

    def _write(self, raw: bytes) -> None:
        try:
            _write_whole(self._descriptor, raw)
        except OSError:
            # Half a frame would hide those that come after it.
            os.ftruncate(self._descriptor, self._size)
            if self._size == 0:
                self._abandon()
            raise
        self._size += len(raw)

    def _abandon(self) -> None:
        self.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _drop_oldest(self, keep_bytes: int) -> None:
        segments = []
        for path in self._config.folder.glob(f"*{SUFFIX}"):
            try:
                status = path.stat()
            except FileNotFoundError:  # another engine's writer was faster
                continue
            segments.append((status.st_mtime_ns, path.name, status.st_size, path))
        total = sum(size for _, _, size, _ in segments)
        for _, _, size, path in sorted(segments):
            if total <= keep_bytes:
                return
            path.unlink(missing_ok=True)
            total -= size
            self._counters.add(LOST, stage=_STAGE, cause="oldest_segment")


def _write_whole(descriptor: int, raw: bytes) -> None:
    if os.write(descriptor, raw) < len(raw):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _read_number(path: Path) -> int:
    digits = path.stem.rpartition("-")[2]
    return int(digits) if digits.isdigit() else 0
