# The expected time of one engine: the model in use, the frozen reference, the sample it learns from, and when
# it learns again. Time comes in as data.
from dataclasses import dataclass

import numpy as np

from otel_llmprism.model.steps import F64, U64
from otel_llmprism.model.work import ExpectationTable, WorkTable
from otel_llmprism.service.sentinel.parts import Model, Sample
from otel_llmprism.service.sentinel.slow_median import I64

FIRST_STEPS, FIRST_NS = 1000, 30_000_000_000
_NEW_STEPS = 500  # learned since, before it is worth another fit
_SHORTEST_NS, _LONGEST_NS = 60_000_000_000, 3_600_000_000_000
_PROOF_STEPS = 300  # of a borrowed model
_PROOF_LIMIT = 0.1  # median |ln(cycle / expected)| that it may show


@dataclass(frozen=True, slots=True)
class TrainJob:
    """What a fit needs; `key` says whose it is."""

    key: str
    work: WorkTable
    cycle_ns: U64
    groups: I64
    seed: int


@dataclass(frozen=True, slots=True)
class TrainResult:
    """`raw` is the model as it is stored; empty when there is none, and `error` says why."""

    key: str
    raw: bytes
    error: str = ""


@dataclass(frozen=True, slots=True)
class InUse:
    model: Model
    raw: bytes
    trained_steps: int
    is_borrowed: bool = False


class EngineModel:
    """One thread."""

    def __init__(self, key: str, sample: Sample, seed: int) -> None:
        self.key = key
        self.current: InUse | None = None
        self.reference: InUse | None = None
        self.learned = 0  # steps that went into the sample
        self.note = ""  # one sentence for a person
        self.sample = sample
        self._seed = seed
        self._since_ns = 0  # of the first step that was learned
        self._until_ns = 0
        self._next_ns = 0
        self._interval_ns = _SHORTEST_NS
        self._at_last_fit = 0
        self._wanted = FIRST_STEPS
        self._is_training = False
        self._fits = 0
        self._proof: list[F64] = []
        self._recent = np.zeros(0)

    def predict(self, work: WorkTable) -> ExpectationTable:
        """Return what to expect; nothing before there is a model."""
        if self.current is None:
            nothing = np.full(len(work), np.nan)
            return ExpectationTable(nothing, nothing.copy(), np.zeros(len(work), dtype=np.uint8))
        return self.current.model.predict(work)

    def learn(self, work: WorkTable, cycle_ns: U64, time_ns: U64) -> None:
        if not len(time_ns):
            return
        self.sample.add(work, cycle_ns, time_ns)
        self._since_ns = self._since_ns or int(time_ns[0])
        self._until_ns = max(self._until_ns, int(time_ns[-1]))
        self.learned += len(time_ns)

    def note_residuals(self, residual: F64) -> bool:
        """Take in what steps showed; True: the borrowed model does not fit here and was dropped."""
        fine = residual[np.isfinite(residual)]
        self._recent = np.concatenate([self._recent, fine])[-2048:]
        if self.current is None or not self.current.is_borrowed:
            return False
        self._proof.append(fine)
        if sum(map(len, self._proof)) < _PROOF_STEPS:
            return False
        shown = abs(float(np.median(np.concatenate(self._proof))))
        self._proof = []
        if shown <= _PROOF_LIMIT:
            self.current = InUse(self.current.model, self.current.raw, self.current.trained_steps)
            return False
        self.current = None
        return True

    def read_error(self) -> float | None:
        """Return the median |cycle / expected - 1| of the latest steps."""
        return float(np.median(np.abs(np.expm1(self._recent)))) if len(self._recent) >= 50 else None

    def find_job(self) -> TrainJob | None:
        """Return what to fit now; None: nothing is due. The caller hands the result to `install`."""
        if self._is_training or self.learned - self._at_last_fit < self._wanted:
            return None
        if self._until_ns - self._since_ns < FIRST_NS or self._until_ns < self._next_ns:
            return None
        self._is_training = True
        self._fits += 1
        return TrainJob(self.key, *self.sample.read(), self._seed + self._fits)

    def defer(self) -> None:
        """The trainer was busy with the job just found: find it again."""
        self._is_training = False
        self._fits -= 1

    def install(self, fitted: InUse | None) -> InUse | None:
        """Use a fitted model from now on and return the one before; None: the fit failed, try later."""
        self._is_training = False
        self._at_last_fit = self.learned
        self._next_ns = self._until_ns + self._interval_ns
        self._interval_ns = min(2 * self._interval_ns, _LONGEST_NS)
        self._wanted = _NEW_STEPS
        if fitted is None:
            return None
        before, self.current = self.current, fitted
        self._proof, self._recent = [], np.zeros(0)
        # The first own model saw little; the second is what later ones are held against.
        if self.reference is None and self._fits >= 2:
            self.reference = fitted
        return before
