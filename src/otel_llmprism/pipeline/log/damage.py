# Says what went wrong on the disk, to the counters and (first of its kind only) to the operator's log.
# Knows no file.
import errno
import logging

from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv.metric import LOST
from otel_llmprism.semconv.pipeline import LOG_ERRORS, LOG_TORN_TAILS

_LOGGER = logging.getLogger(__name__)
_CAUSES = {errno.ENOSPC: "no_space", errno.EDQUOT: "no_space", errno.EROFS: "read_only", errno.EIO: "io"}


class DamageReport:
    """One per log; not thread-safe beyond what Counters is: a message told twice does no harm."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._told: set[tuple[str, str]] = set()

    def note_error(self, operation: str, error: OSError) -> None:
        """Count a failed operation; tell it once until it works again."""
        cause = _CAUSES.get(error.errno or 0, "other")
        self._counters.add(LOG_ERRORS, operation=operation, cause=cause)
        if (operation, cause) not in self._told:
            self._told.add((operation, cause))
            _LOGGER.error("write-ahead log: cannot %s: %s; it is tried again", operation, error)

    def note_success(self, operation: str) -> None:
        """Say that an operation that failed works again; the next failure is told again."""
        if self._told:
            still_failing = {told for told in self._told if told[0] != operation}
            if len(still_failing) < len(self._told):
                self._told = still_failing
                _LOGGER.warning("write-ahead log: %s works again", operation)

    def note_damage(self, where: str, records: int, *, is_torn: bool) -> None:
        """Count records that cannot be read any more, and an unfinished write at the end of a file."""
        if is_torn:
            self._counters.add(LOG_TORN_TAILS)
        if records:
            self._counters.add(LOST, records, stage="log", cause="corrupt")
            _LOGGER.error("write-ahead log: %s is damaged: %d records cannot be read", where, records)
