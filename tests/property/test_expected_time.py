# More work never takes less time, whatever was learned; any bytes are safe to read; any numbers are answered.
import hashlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_llmprism.baseline.expected import (
    BaselineFormatError,
    ExpectedTime,
    FitSettings,
    TooFewStepsError,
    dump_expected,
    fit_expected,
    load_expected,
)
from otel_llmprism.baseline.expected.format import DIGEST_BYTES
from otel_llmprism.model.work import WorkTable

NAMES = ("prefill_tokens", "decode_tokens", "kv_tokens")
QUICK = FitSettings(min_steps=50, folds=2, starts=2, members=2, resources=2, terms=2, trees=20)
MODELS: dict[int, ExpectedTime] = {}


def fit_random(seed: int) -> ExpectedTime:
    """A model of steps whose law is random and not monotone, so that only the model can make it so."""
    if seed not in MODELS:
        rng = np.random.default_rng(seed)
        values = np.floor(np.exp(rng.uniform(0, 9, (300, 3)))) * (rng.random((300, 3)) < 0.8)
        bumps = np.sin(np.log1p(values) @ rng.normal(0, 1, 3)) + rng.normal(0, 0.1, 300)
        cycle_ns = np.exp(14 + 0.1 * np.log1p(values).sum(axis=1) + 0.3 * bumps).astype(np.uint64)
        loose = FitSettings(**{name: getattr(QUICK, name) for name in QUICK.__slots__} | {"max_error": 9.0})
        work = WorkTable(np.full(300, 2, np.uint8), NAMES, values)
        MODELS[seed] = fit_expected(work, cycle_ns, np.arange(300) // 10, loose, seed)
    return MODELS[seed]


def ask(model: ExpectedTime, rows: list[list[float]]) -> np.ndarray:
    work = WorkTable(np.full(len(rows), 2, np.uint8), NAMES, np.array(rows, float).reshape(-1, 3))
    return model.predict(work).expected_ns


amounts = st.one_of(st.just(0.0), st.integers(1, 20_000).map(float), st.floats(0, 1e15))


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 3),
    st.lists(amounts, min_size=3, max_size=3),
    st.integers(0, 2),
    st.lists(amounts, min_size=2, max_size=20),
)
def test_more_of_any_work_never_takes_less_time(
    seed: int, row: list[float], feature: int, rising: list[float]
) -> None:
    rows = [[*row[:feature], amount, *row[feature + 1 :]] for amount in sorted(rising)]
    expected = ask(fit_random(seed), rows)
    assert (np.diff(np.log(expected)) >= -1e-5).all()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=3, max_size=3), max_size=9))
def test_any_numbers_are_answered(rows: list[list[float]]) -> None:
    expected = ask(fit_random(0), rows)
    assert np.isfinite(expected).all()
    assert (expected > 0).all()


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_are_refused(raw: bytes) -> None:
    with pytest.raises(BaselineFormatError) as refused:
        load_expected(raw)
    assert "\n" not in str(refused.value)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), min_size=1, max_size=4), st.booleans()
)
def test_changed_bytes_are_refused_or_answer_with_numbers(changes: list[tuple[int, int]], cut: bool) -> None:
    """The digest is made right again: what is left to protect us is the check of every value."""
    body = bytearray(dump_expected(fit_random(0))[:-DIGEST_BYTES])
    for place, mask in changes:
        body[place % len(body)] ^= mask
    if cut:
        del body[changes[0][0] % len(body) :]
    try:
        model = load_expected(bytes(body) + hashlib.sha256(body).digest())
    except BaselineFormatError:
        return
    answer = ask(model, [[0.0, 0.0, 0.0], [64.0, 8.0, 4096.0], [1e15, 1e15, 1e15]])
    assert not np.isinf(answer).any()  # NaN: the part for this kind was renamed or not earned


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(0, 80),
    st.sampled_from([0.0, 1.0, np.nan, np.inf, -1.0, 1e300, 1e15]),
    st.sampled_from([0, 1, 1_000, 10**14, (1 << 64) - 1]),
    st.integers(1, 40),
)
def test_any_series_gives_a_model_or_too_few_steps(rows: int, filler: float, cycle: int, groups: int) -> None:
    rng = np.random.default_rng(rows)
    values = np.where(rng.random((rows, 3)) < 0.5, filler, rng.integers(0, 9, (rows, 3)))
    cycle_ns = np.where(rng.random(rows) < 0.5, np.uint64(cycle), np.uint64(5_000_000))
    work = WorkTable(rng.integers(0, 3, rows).astype(np.uint8), NAMES, values)
    few = FitSettings(**{name: getattr(QUICK, name) for name in QUICK.__slots__} | {"min_steps": 8})
    try:
        model = fit_expected(work, cycle_ns, np.arange(rows) % groups, few, 0)
    except TooFewStepsError:
        return
    load_expected(dump_expected(model)).predict(work)
