# What the processor knows of its engines so far: ledger tables in, counters out.
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ledger import HostBatch, LedgerBatch, LedgerSource
from otel_llmprism.semconv.ledger import EVENT_HOST, EVENT_LEDGER
from otel_llmprism.semconv.ledger_intake import LEDGER_CHUNKS, LEDGER_LAST_STEP_SEEN, LEDGER_STEPS

# An engine mints an id with each start: named for ever, they would use up the series of every other count.
_MAX_ENGINES = 200
_OTHER = "other"


class LedgerMeter:
    """Counts chunks and steps; keeps the last step of the first engines it sees. One thread."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._last_steps: dict[str, tuple[str, int]] = {}

    def take(self, batch: LedgerBatch | HostBatch) -> None:
        """Count what one batch of tables holds."""
        event = EVENT_LEDGER if isinstance(batch, LedgerBatch) else EVENT_HOST
        self._counters.add(LEDGER_CHUNKS, len(batch.chunks.seq), event=event)
        if isinstance(batch, LedgerBatch) and len(batch.tables.steps.step):
            steps = batch.tables.steps.step
            is_named = batch.source.engine_id in self._last_steps or len(self._last_steps) < _MAX_ENGINES
            self._counters.add(
                LEDGER_STEPS, len(steps), engine=batch.source.engine_id if is_named else _OTHER
            )
            if is_named:
                self._note_last_step(batch.source, int(steps.max()))

    def _note_last_step(self, source: LedgerSource, step: int) -> None:
        # Chunks of several nodes arrive out of order; a new run starts at 0 again.
        known_run, known_step = self._last_steps.get(source.engine_id, (source.run, 0))
        last = max(step, known_step) if known_run == source.run else step
        self._last_steps[source.engine_id] = (source.run, last)
        self._counters.set(LEDGER_LAST_STEP_SEEN, last, engine=source.engine_id)
