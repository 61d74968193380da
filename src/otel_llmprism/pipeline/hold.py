# Holds claimed spans for a while, so that a stage behind can still add to them; all others pass at
# once. Batches in, batches out; what is claimed is said by a predicate. Takes time as data.
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from otel_llmprism.model.signals import Signal
from otel_llmprism.native.otlp import Scan, select
from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv.pipeline import HOLD_BYTES, HOLD_EARLY

_INVERT = bytes([1]) + bytes(255)  # 0 becomes 1, all else 0


@dataclass(frozen=True, slots=True)
class HoldConfig:
    hold_s: float = 2.0
    max_bytes: int = 64 << 20

    def __post_init__(self) -> None:
        if self.hold_s < 0 or self.max_bytes <= 0:
            raise ValueError("hold_s must not be negative and max_bytes must be above 0")


@dataclass(frozen=True, slots=True)
class Claim:
    """The records of a batch to hold: one byte each, not 0 for a claimed one."""

    scan: Scan
    records: bytes


class Hold:
    """A Stage. The order among held pieces is that of arrival; the oldest leave early at the bound."""

    def __init__(
        self, config: HoldConfig, find_claim: Callable[[Batch], Claim | None], counters: Counters
    ) -> None:
        self._hold_ns = int(config.hold_s * 1e9)
        self._max_bytes = config.max_bytes
        self._find_claim = find_claim
        self._counters = counters
        self._held: deque[Batch] = deque()
        self._bytes = 0

    def consume(self, batch: Batch, /) -> Iterable[Batch]:
        claim = self._find_claim(batch) if batch.signal is Signal.TRACES else None
        if claim is None or not any(claim.records):
            return (batch,)
        if all(claim.records):
            return self._keep(batch)
        claimed = replace(batch, payload=select(batch.payload, claim.scan, claim.records))
        passing = replace(batch, payload=select(batch.payload, claim.scan, claim.records.translate(_INVERT)))
        batch.receipt.add_pieces(1)
        return (passing, *self._keep(claimed))

    def flush(self, due_ns: int, /) -> Iterable[Batch]:
        arrived_until_ns = due_ns - self._hold_ns
        due = []
        while self._held and self._held[0].arrived_ns <= arrived_until_ns:
            due.append(self._pop())
        self._counters.set(HOLD_BYTES, self._bytes)
        return due

    def _keep(self, batch: Batch) -> list[Batch]:
        """Hold a batch; give those that must leave to make room, at worst the batch itself."""
        self._held.append(batch)
        self._bytes += len(batch.payload)
        early = list(self._make_room())
        if early:
            self._counters.add(HOLD_EARLY, len(early))
        return early

    def _make_room(self) -> Iterator[Batch]:
        while self._bytes > self._max_bytes:
            yield self._pop()

    def _pop(self) -> Batch:
        batch = self._held.popleft()
        self._bytes -= len(batch.payload)
        return batch
