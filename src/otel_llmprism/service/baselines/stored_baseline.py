# What one stored model is about: whose it is, what it was fitted on, how far each instance lies from it, and
# a sample of work to compare it with others by.
from dataclasses import dataclass, field

from otel_llmprism.baseline.expected import ExpectedTime
from otel_llmprism.model.work import WorkTable

ANY = ""  # as a key's engine: every engine that has no model of its own


@dataclass(frozen=True, slots=True, order=True)
class BaselineKey:
    """Whose steps a model explains; an empty part stands for any."""

    engine: str = ANY
    model: str = ANY
    hardware: str = ANY

    def describe(self) -> str:
        """Return the parts that are set, `any engine` when none is."""
        return " ".join(part for part in (self.engine, self.model, self.hardware) if part) or "any engine"


@dataclass(frozen=True, slots=True)
class FitNotes:
    """What a model was fitted on, and how it did on steps that were left out for the purpose."""

    steps: int
    instances: int
    seed: int
    from_ns: int = 0
    to_ns: int = 0
    mape: float | None = None  # out of fold; where there were enough instances, on instances left out


@dataclass(frozen=True, slots=True)
class StoredBaseline:
    key: BaselineKey
    model: ExpectedTime
    notes: FitNotes
    probe: WorkTable  # some of the work it was fitted on
    # instance -> kind -> ln(its cycles / what the model says), drawn to 0 where few steps speak for it
    offsets: dict[str, dict[int, float]] = field(default_factory=dict)
