# The folder of a log: 0700, used by one process at a time, with numbered segments and their
# acknowledgements. Knows names and locks, not what is inside a segment beyond its header.
import contextlib
import fcntl
import os
from pathlib import Path

from otel_llmprism.native.log_frame import (
    DamagedHeaderError,
    SegmentHeader,
    UnknownFormatError,
    decode_segment_header,
)
from otel_llmprism.pipeline.log.errors import LogStartError

SEGMENT_SUFFIX, ACK_SUFFIX, DAMAGED_SUFFIX = ".wal", ".ack", ".damaged"
MAX_HEADER_BYTES = 64


class LogFolder:
    """Holds the lock from `lock` to `unlock`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock_fd = -1

    def lock(self) -> None:
        """Make the folder if need be and take it; raises LogStartError with the mend."""
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.path.stat().st_mode & 0o077:
                self.path.chmod(0o700)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(self.path / "lock", flags, 0o600)
        except OSError as error:
            raise LogStartError(
                error.errno,
                f"the log folder {self.path} cannot be used ({error.strerror}): make it writable for this "
                "user with free space, or set another log directory",
            ) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
            os.close(fd)
            raise LogStartError(
                error.errno,
                f"the log folder {self.path} is in use by process {owner or 'unknown'}: stop that one, or "
                "give each process a log directory of its own",
            ) from error
        with contextlib.suppress(OSError):  # the number only helps a reader; a full disk may refuse it
            os.ftruncate(fd, 0)
            os.pwrite(fd, str(os.getpid()).encode(), 0)
        self._lock_fd = fd

    def unlock(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def locate_segment(self, segment_id: int) -> Path:
        return self.path / f"{segment_id:016d}{SEGMENT_SUFFIX}"

    def list_segments(self) -> list[Path]:
        """Segments, oldest first. Acknowledgements without a segment are left from a crash: removed."""
        segments = sorted(path for path in self.path.glob(f"*{SEGMENT_SUFFIX}") if path.stem.isdigit())
        known = {path.stem for path in segments}
        for ack in self.path.glob(f"*{ACK_SUFFIX}"):
            if ack.stem not in known:
                with contextlib.suppress(OSError):
                    ack.unlink()
        return segments

    def find_next_id(self) -> int:
        """A number above every one that was ever seen in the folder, set-aside segments included."""
        return max((int(path.stem) for path in self.path.iterdir() if path.stem.isdigit()), default=0) + 1


def read_header(path: Path) -> SegmentHeader | None:
    """Give the header; None when the file ends within it or it is damaged; refuses a newer format."""
    try:
        with path.open("rb") as segment:
            return decode_segment_header(segment.read(MAX_HEADER_BYTES))
    except DamagedHeaderError:
        return None
    except UnknownFormatError as error:
        raise LogStartError(
            f"{path} is of {error}: start the program that wrote it and let it drain the log, or move "
            "the file away"
        ) from error
    except OSError as error:
        raise LogStartError(error.errno, f"{path} cannot be read ({error.strerror})") from error
