# An invented engine whose steps have a known law, and settings small enough for a test.
from collections.abc import Callable

import numpy as np
import pytest

from otel_llmprism.baseline.expected import ExpectedTime, FitSettings, fit_expected
from otel_llmprism.model.steps import U64
from otel_llmprism.model.work import STANDARD_FEATURES, WorkTable

DECODE, MIXED = 2, 3
Steps = tuple[WorkTable, U64]
Invent = Callable[..., Steps]


def invent_steps(count: int, seed: int, scale: float = 1.0, noise: float = 0.05) -> Steps:
    rng = np.random.default_rng(seed)
    decode = rng.integers(1, int(100 * scale), count)
    kv = decode * rng.integers(50, 2000, count)
    kind = np.where(rng.random(count) < 0.4, MIXED, DECODE).astype(np.uint8)
    prefill = np.where(kind == MIXED, rng.integers(16, 1024, count), 0)
    ms = 2 + np.maximum(0.02 * decode, 3) + 3e-5 * kv + 0.01 * prefill
    values = np.column_stack([prefill, decode, kv, decode + (prefill > 0), np.ones(count)]).astype(float)
    cycle_ns = (1e6 * ms * np.exp(rng.normal(0, noise, count))).astype(np.uint64)
    return WorkTable(kind, STANDARD_FEATURES, values), cycle_ns


@pytest.fixture(name="invent")
def give_inventor() -> Invent:
    return invent_steps


@pytest.fixture(name="quick", scope="session")
def give_settings() -> FitSettings:
    return FitSettings(min_steps=50, folds=3, starts=2, members=1, resources=2, terms=2, trees=20)


@pytest.fixture(name="model", scope="session")
def fit_model(quick: FitSettings) -> ExpectedTime:
    work, cycle_ns = invent_steps(1200, seed=1)
    return fit_expected(work, cycle_ns, np.arange(1200) // 60, quick, seed=0)
