# What the processor knows of its engines so far: ledger chunks in, counters out.
from otel_llmprism.native.ledger import decode_chunks
from otel_llmprism.native.ledger_schema import Table
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv import ledger as names
from otel_llmprism.semconv.ledger_intake import (
    LEDGER_CHUNKS,
    LEDGER_DUPLICATES,
    LEDGER_LAST_STEP_SEEN,
    LEDGER_STEPS,
)
from otel_llmprism.semconv.metric import LOST
from otel_llmprism.service.processor_ledger import LedgerChunk

_MAX_ENGINES = 10_000


class LedgerMeter:
    """Counts chunks, steps, duplicates; keeps the last step of each engine. One thread."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._last_steps: dict[str, tuple[str, int]] = {}

    def take_chunks(self, chunks: list[LedgerChunk], duplicate_count: int) -> None:
        """Count new chunks; one that cannot be decoded is counted as lost."""
        if duplicate_count:
            self._counters.add(LEDGER_DUPLICATES, duplicate_count)
        for chunk in chunks:
            self._counters.add(LEDGER_CHUNKS, event=chunk.event)
        steps = [chunk for chunk in chunks if chunk.event == names.EVENT_LEDGER]
        if steps:
            self._count_steps(steps)

    def _count_steps(self, chunks: list[LedgerChunk]) -> None:
        decoded = decode_chunks([chunk.body for chunk in chunks])
        for _, status in decoded.refused:
            self._counters.add(LOST, stage="ledger", cause=status.name.lower())
        for position, rows in zip(decoded.accepted, decoded.rows, strict=True):
            chunk = chunks[position]
            self._counters.add(LEDGER_STEPS, rows[Table.STEPS], engine=chunk.engine)
            if chunk.last_step is not None:
                self._note_last_step(chunk.engine, chunk.run, chunk.last_step)

    def _note_last_step(self, engine: str, run: str, step: int) -> None:
        # Chunks of several nodes arrive out of order; a new run starts at 0 again.
        known_run, known_step = self._last_steps.pop(engine, (run, 0))
        last = max(step, known_step) if known_run == run else step
        self._last_steps[engine] = (run, last)
        if len(self._last_steps) > _MAX_ENGINES:
            del self._last_steps[next(iter(self._last_steps))]
        self._counters.set(LEDGER_LAST_STEP_SEEN, last, engine=engine)
