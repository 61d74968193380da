# The sentinel as the service runs it, but for the clock and the process that trains: what a replay needs.
import itertools

from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ledger import LedgerReader
from otel_llmprism.service.sentinel.core import CoreConfig, SentinelCore
from otel_llmprism.service.sentinel.engine_model import TrainJob, TrainResult
from otel_llmprism.service.sentinel.training import SyncTrainer
from otel_llmprism.service.sentinel.wiring import build_parts
from otel_llmprism.testing.evaluation.replay import ReplayState


class FreezableTrainer:
    """Fits at once, as a replay wants it, until it is frozen."""

    def __init__(self, trainer: SyncTrainer) -> None:
        self._trainer = trainer
        self.is_frozen = False

    def submit(self, job: TrainJob) -> bool:
        return not self.is_frozen and self._trainer.submit(job)

    def poll(self) -> list[TrainResult]:
        return self._trainer.poll()


def build_replay(seed: int) -> ReplayState:
    """Return a sentinel that has seen nothing; equal seeds and data give equal findings."""
    numbers = itertools.count(1)
    parts, counters = build_parts(), Counters()
    trainer = FreezableTrainer(SyncTrainer(parts))
    core = SentinelCore(CoreConfig(seed=seed), parts, trainer, counters, lambda: f"{next(numbers):032x}")
    return ReplayState(core, LedgerReader(counters), counters, trainer)
