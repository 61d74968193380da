# Sinks for tests: one that remembers and settles, one that misbehaves as told.
import threading

from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.batch import Batch


class RecordingSink:
    """Keeps every batch; settles at once unless `holds_receipts`; wait_for_count ends a test's wait."""

    def __init__(self, *, holds_receipts: bool = False) -> None:
        self.batches: list[Batch] = []
        self.is_started = False
        self._holds_receipts = holds_receipts
        self._changed = threading.Condition()

    def start(self) -> None:
        self.is_started = True

    def send(self, batch: Batch, /) -> None:
        with self._changed:
            self.batches.append(batch)
            self._changed.notify_all()
        if not self._holds_receipts:
            batch.receipt.settle()

    def stop(self, deadline_ns: int) -> None:
        del deadline_ns
        self.is_started = False

    def wait_for_count(self, count: int, timeout_s: float = 10.0) -> bool:
        """Wait until `count` batches came; False when `timeout_s` passed before that."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.batches) >= count, timeout_s)

    def list_payloads(self, signal: Signal | None = None) -> list[bytes]:
        with self._changed:
            return [batch.payload for batch in self.batches if signal in (None, batch.signal)]


class FailingSink:
    """Raises in `send` for the first `failures` batches, then settles."""

    def __init__(self, failures: int) -> None:
        self.failures_left = failures
        self.sent: list[bytes] = []

    def start(self) -> None:
        """Need nothing."""

    def send(self, batch: Batch, /) -> None:
        if self.failures_left > 0:
            self.failures_left -= 1
            raise OSError("told to fail")
        self.sent.append(batch.payload)
        batch.receipt.settle()

    def stop(self, deadline_ns: int) -> None:
        del deadline_ns


class StuckSink:
    """Blocks in `send` and in `stop` until `free` is called, as a hung backend would."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self._freed = threading.Event()

    def start(self) -> None:
        """Need nothing."""

    def send(self, batch: Batch, /) -> None:
        self.entered.set()
        self._freed.wait()
        batch.receipt.settle()

    def stop(self, deadline_ns: int) -> None:
        del deadline_ns
        self._freed.wait()

    def free(self) -> None:
        self._freed.set()
