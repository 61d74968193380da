# Two models compared on the same work.
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from otel_llmprism.baseline.expected import ExpectedTime, FitSettings, compare_expected, fit_expected
from otel_llmprism.model.steps import U64
from otel_llmprism.model.work import WorkTable

Invent = Callable[..., tuple[WorkTable, U64]]


def test_a_model_does_not_drift_from_itself(model: ExpectedTime, invent: Invent) -> None:
    work, _ = invent(300, seed=30)
    drift = compare_expected(model, model, work)
    assert drift.find_largest() == 0.0
    assert {kind.kind for kind in drift.kinds} == {2, 3}


def test_an_engine_a_tenth_slower_drifts_by_a_tenth(
    model: ExpectedTime, invent: Invent, quick: FitSettings
) -> None:
    work, cycle_ns = invent(1200, seed=31)
    slower = fit_expected(work, (cycle_ns * 1.1).astype(np.uint64), np.arange(1200) // 60, quick, seed=1)
    assert compare_expected(slower, model, work).find_largest() == pytest.approx(0.1, abs=0.03)


def test_what_neither_knows_is_counted_and_not_compared(model: ExpectedTime, invent: Invent) -> None:
    work, _ = invent(300, seed=32)
    drift = compare_expected(model, model, replace(work, kind=np.full(300, 4, np.uint8)))
    assert (drift.kinds, drift.unanswered) == ((), 300)
    assert drift.find_largest() == 0.0
