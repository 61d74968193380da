# How far each instance lies from the model that all share: one factor a kind, drawn towards 1 where the
# instance's own steps disagree more than instances do. An instance never seen loses nothing but its factor.
import numpy as np

from otel_llmprism.model.steps import F64
from otel_llmprism.model.work import ExpectationTable
from otel_llmprism.service.baselines.gathering import StepPart
from otel_llmprism.service.baselines.grouping import cut_blocks

MIN_STEPS = 30
_MAD_TO_SD = 1.4826


def name_instance(engine: str, instance: str) -> str:
    """Return the name an instance's factor is kept under."""
    return engine if instance in {"", engine} else f"{engine} {instance}".strip()


def measure_offsets(
    parts: list[StepPart], expectations: list[ExpectationTable]
) -> dict[str, dict[int, float]]:
    """Return instance -> kind -> ln(observed / expected); nothing when there is one instance only."""
    if len(parts) < 2:
        return {}
    measured: dict[int, list[tuple[str, float, float]]] = {}
    for part, expectation in zip(parts, expectations, strict=True):
        residual = np.log(part.cycle_ns / expectation.expected_ns)
        for kind in np.unique(part.work.kind).tolist():
            own = residual[(part.work.kind == kind) & np.isfinite(residual)]
            if len(own) >= MIN_STEPS:
                name = name_instance(part.engine, part.instance)
                measured.setdefault(kind, []).append((name, *_measure(own)))
    offsets: dict[str, dict[int, float]] = {}
    for kind, entries in measured.items():
        for name, value in shrink(entries):
            offsets.setdefault(name, {})[kind] = value
    return offsets


def shrink(entries: list[tuple[str, float, float]]) -> list[tuple[str, float]]:
    """Return each value times between / (between + its own variance); one alone says nothing."""
    values = np.array([value for _, value, _ in entries])
    errors = np.array([error for _, _, error in entries])
    if len(values) < 2:
        return []
    # Instances that hardly know where they lie say little about how far apart instances are.
    trust = 1 / (errors**2 + np.median(values**2) + 1e-9)
    between = max(0.0, float(np.average(values**2 - errors**2, weights=trust)))
    weight = between / np.maximum(between + errors**2, 1e-12)
    return [(name, float(v)) for (name, _, _), v in zip(entries, values * weight, strict=True)]


def _measure(residual: F64) -> tuple[float, float]:
    """Return the middle of the blocks' medians and its standard error: single steps are no witnesses."""
    blocks = cut_blocks(len(residual))
    medians = np.array([np.median(residual[blocks == block]) for block in range(int(blocks[-1]) + 1)])
    middle = float(np.median(medians))
    sd = _MAD_TO_SD * float(np.median(np.abs(medians - middle)))
    if len(medians) < 3:
        sd = max(sd, float(np.std(residual)))
    return middle, max(sd / np.sqrt(len(medians)), 1e-3)
