# Stored models and rows -> what the rows should have taken. A row is asked of its engine's own model, then of
# the one that all engines share; its instance's factor is put on where one is known.
from dataclasses import dataclass

import numpy as np

from otel_llmprism.model.work import ExpectationTable, WorkTable
from otel_llmprism.receivers.step_records import RecordBatch
from otel_llmprism.service.baselines.instance_offsets import name_instance
from otel_llmprism.service.baselines.stored_baseline import ANY, BaselineKey, StoredBaseline


@dataclass(frozen=True, slots=True)
class BaselineSet:
    by_key: dict[BaselineKey, StoredBaseline]

    @staticmethod
    def from_list(baselines: list[StoredBaseline]) -> "BaselineSet":
        return BaselineSet({stored.key: stored for stored in baselines})

    def choose(self, engine: str) -> list[StoredBaseline]:
        """Return whom to ask about an engine, in that order."""
        chosen = [stored for key, stored in self.by_key.items() if key.engine == engine != ANY]
        chosen += [stored for key, stored in self.by_key.items() if key.engine == ANY]
        return chosen or (list(self.by_key.values()) if len(self.by_key) == 1 else [])

    def predict(self, batch: RecordBatch) -> ExpectationTable:
        """Return an answer a row; NaN where no model knows the row's kind."""
        count = len(batch)
        answer = ExpectationTable(np.full(count, np.nan), np.full(count, np.nan), np.zeros(count, np.uint8))
        pairs = batch.engine.astype(np.int64) << 32 | batch.instance
        for pair in np.unique(pairs).tolist():
            engine, instance = batch.engine_names[pair >> 32], batch.instance_names[pair & 0xFFFFFFFF]
            rows = np.flatnonzero(pairs == pair)
            for stored in self.choose(engine):
                rows = rows[np.isnan(answer.expected_ns[rows])]
                if not len(rows):
                    break
                work = WorkTable(batch.work.kind[rows], batch.work.names, batch.work.values[rows])
                told = predict_instance(stored, work, name_instance(engine, instance))
                answer.expected_ns[rows], answer.spread[rows] = told.expected_ns, told.spread
                answer.is_known[rows] = told.is_known
        return answer


def predict_instance(stored: StoredBaseline, work: WorkTable, name: str) -> ExpectationTable:
    """Return what one model says of one instance's work."""
    told = stored.model.predict(work)
    offsets = stored.offsets.get(name)
    if not offsets:
        return told
    by_kind = np.zeros(256)
    by_kind[list(offsets)] = list(offsets.values())
    return ExpectationTable(told.expected_ns * np.exp(by_kind[work.kind]), told.spread, told.is_known)
