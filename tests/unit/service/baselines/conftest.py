# Step records of instances whose times are known, and a small model fitted to them once for all tests.
from collections.abc import Callable

import numpy as np
import pytest

from otel_llmprism.baseline.expected import FitSettings
from otel_llmprism.model.work import DECODE_TOKENS, KV_TOKENS, WorkTable
from otel_llmprism.native.ring_codes import StepKind
from otel_llmprism.receivers.step_records import RecordBatch
from otel_llmprism.service.baselines.fitting import fit_baselines
from otel_llmprism.service.baselines.gathering import StepGatherer
from otel_llmprism.service.baselines.stored_baseline import StoredBaseline

QUICK = FitSettings(
    min_steps=50, folds=2, resources=1, terms=2, starts=3, members=1, use_trees=False, max_rows=2000
)


def build_batch(
    engine: str, instance: str, *, seed: int, factor: float = 1.0, steps: int = 200, most: int = 32
) -> RecordBatch:
    """Decode steps of 2 ms and more, two in a hundred off."""
    rng = np.random.default_rng(seed)
    decode = rng.integers(1, most + 1, steps).astype(np.float64)
    kv = decode * rng.integers(100, 900, steps)
    cycle = (2e6 + 2e4 * decode + 40 * kv) * factor * rng.lognormal(0, 0.02, steps)
    work = WorkTable(
        np.full(steps, StepKind.DECODE, np.uint8), (DECODE_TOKENS, KV_TOKENS), np.stack([decode, kv], axis=1)
    )
    start = np.cumsum(cycle).astype(np.int64)
    everyone = np.zeros(steps, np.uint32)
    return RecordBatch(
        work, cycle.astype(np.uint64), start, np.arange(steps, dtype=np.uint64),
        everyone, (engine,), everyone, (instance,),
    )  # fmt: skip


def fit_batches(*batches: RecordBatch) -> list[StoredBaseline]:
    gatherer = StepGatherer(seed=1)
    for batch in batches:
        gatherer.add(batch)
    told: list[str] = []
    tell: Callable[[str], None] = told.append
    return fit_baselines(gatherer.read_parts(), QUICK, 1, tell).baselines


@pytest.fixture(scope="session")
def stored() -> StoredBaseline:
    """Return the model of instances `even`, and `slow`, a third slower."""
    (shared,) = fit_batches(build_batch("e", "even", seed=1), build_batch("e", "slow", seed=2, factor=4 / 3))
    return shared


@pytest.fixture(scope="session")
def build() -> Callable[..., RecordBatch]:
    return build_batch


@pytest.fixture(scope="session")
def fit() -> Callable[..., list[StoredBaseline]]:
    return fit_batches
