# Group fsync: callers that wait for the disk at the same time share one fdatasync.
# Knows one file; the first waiter syncs for all that was written when it began.
import errno
import os
import threading

from otel_llmprism.pipeline.log.disk import Disk


class GroupSync:
    """Owns a duplicate of `fd`. After a failed sync everything not yet synced fails, for good."""

    def __init__(self, fd: int, disk: Disk) -> None:
        self._fd = os.dup(fd)
        self._disk = disk
        self._written = 0
        self._synced = 0
        self._is_syncing = False
        self._is_closed = self._is_delivered = False
        self._error: OSError | None = None
        self._changed = threading.Condition()

    def note_written(self, end: int) -> None:
        """Say that the file now reaches to `end`. One caller at a time."""
        self._written = end

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    def wait_until(self, end: int) -> None:
        """Return once bytes up to `end` are on the disk; raises the OSError of the sync that failed.

        When the file is closed meanwhile, `close` says what its waiters are told.
        """
        with self._changed:
            while self._is_syncing and self._synced < end:
                self._changed.wait()
            if self._synced >= end or self._is_delivered:
                return
            if self._is_closed:
                raise OSError(errno.ESHUTDOWN, os.strerror(errno.ESHUTDOWN))
            if self._error is not None:
                # the kernel may have dropped the dirty pages: a later sync that succeeds proves nothing
                raise OSError(self._error.errno, self._error.strerror)
            self._is_syncing = True
            target = self._written
        self._sync_up_to(target)
        self.wait_until(end)

    def close(self, *, is_delivered: bool) -> None:
        """Wake everyone; the file is closed now, or by the sync under way when that ends.

        `is_delivered`: all it held was acknowledged downstream, so nobody needs the disk any more;
        else those who still wait must not say that their data is safe.
        """
        with self._changed:
            if self._is_closed:
                return
            self._is_closed, self._is_delivered = True, is_delivered
            if not self._is_syncing:
                os.close(self._fd)
            self._changed.notify_all()

    def _sync_up_to(self, target: int) -> None:
        error: OSError | None = None
        try:
            self._disk.sync(self._fd)
        except OSError as failure:
            error = failure
        with self._changed:
            self._is_syncing = False
            if error is None:
                self._synced = target
            else:
                self._error = error
            if self._is_closed:
                os.close(self._fd)
            self._changed.notify_all()
