# Fitting over instances, and what a fitted folder then says of rows.
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from otel_llmprism.baseline.expected import FitSettings, TooFewStepsError
from otel_llmprism.model.work import WorkTable
from otel_llmprism.native.ring_codes import StepKind
from otel_llmprism.receivers.step_records import RecordBatch
from otel_llmprism.service.baselines.checking import CheckReport, check_batch
from otel_llmprism.service.baselines.difference import compare_baselines
from otel_llmprism.service.baselines.fitting import fit_baselines
from otel_llmprism.service.baselines.gathering import MAX_PARTS, StepGatherer, join_work
from otel_llmprism.service.baselines.grouping import MIN_INSTANCES, build_groups
from otel_llmprism.service.baselines.instance_offsets import shrink
from otel_llmprism.service.baselines.prediction import BaselineSet
from otel_llmprism.service.baselines.stored_baseline import BaselineKey, StoredBaseline

Build = Callable[..., RecordBatch]
Fit = Callable[..., list[StoredBaseline]]


def check(stored: list[StoredBaseline], *batches: RecordBatch) -> CheckReport:
    report, models = CheckReport(), BaselineSet.from_list(stored)
    for batch in batches:
        check_batch(report, models, batch)
    return report


def read_mape(report: CheckReport) -> float:
    mape = report.total.to_json()["mape"]
    assert mape is not None
    return mape


def test_instance_that_is_slower_has_its_own_factor(stored: StoredBaseline, build: Build) -> None:
    slow = build("e", "slow", seed=11, factor=4 / 3)
    assert read_mape(check([stored], slow)) < 0.05
    assert read_mape(check([replace(stored, offsets={})], slow)) > 0.1


def test_instance_never_seen_is_answered_by_the_shared_model(stored: StoredBaseline, build: Build) -> None:
    report = check([stored], build("e", "new", seed=12, factor=7 / 6))
    assert report.total.to_json()["coverage"] == 1.0
    assert read_mape(report) < 0.1


def test_engine_never_seen_is_answered_by_the_shared_model(stored: StoredBaseline, build: Build) -> None:
    assert check([stored], build("other", "", seed=13)).total.to_json()["coverage"] == 1.0


def test_engine_of_another_shape_gets_a_model_of_its_own(build: Build, fit: Fit) -> None:
    flat = build("flat", "f", seed=3, steps=1500)
    flat = replace(
        flat, cycle_ns=np.random.default_rng(4).integers(3_000_000, 3_100_000, 1500).astype(np.uint64)
    )
    stored = fit(flat, build("steep", "s", seed=5, factor=5.0, steps=1500))
    assert BaselineKey("flat") in [entry.key for entry in stored]
    assert read_mape(check(stored, flat)) < 0.05


def test_engines_that_are_alike_share_one_model(build: Build, fit: Fit) -> None:
    stored = fit(build("one", "", seed=1, steps=1200), build("two", "", seed=2, steps=1200))
    assert [entry.key for entry in stored] == [BaselineKey()]


def test_too_few_steps_are_said(build: Build) -> None:
    gatherer = StepGatherer(seed=1)
    gatherer.add(build("e", "i", seed=1, steps=10))
    with pytest.raises(TooFewStepsError):
        fit_baselines(gatherer.read_parts(), FitSettings(), 1, lambda _text: None)
    with pytest.raises(TooFewStepsError):
        fit_baselines([], FitSettings(), 1, lambda _text: None)


def test_same_seed_and_steps_give_the_same_model(build: Build, fit: Fit) -> None:
    first, second = (fit(build("e", "i", seed=1))[0] for _ in range(2))
    assert first.model.version == second.model.version


def test_kind_never_seen_lowers_the_coverage_not_the_error(stored: StoredBaseline, build: Build) -> None:
    batch = build("e", "even", seed=6)
    batch.work.kind[:50] = StepKind.PREFILL
    figures = check([stored], batch).to_json()
    assert figures["coverage"] == 0.75
    groups = figures["groups"]
    assert isinstance(groups, list)
    by_kind = {group["kind"]: group for group in groups}
    assert by_kind["prefill"]["mape"] is None
    assert (by_kind["prefill"]["coverage"], by_kind["decode"]["coverage"]) == (0.0, 1.0)


def test_figures_are_those_of_the_definition(stored: StoredBaseline, build: Build) -> None:
    batch = build("e", "even", seed=7)
    told = BaselineSet.from_list([stored]).predict(batch)
    error = np.abs(told.expected_ns / batch.cycle_ns - 1)
    figures = check([stored], batch).total.to_json()
    assert figures["mape"] == pytest.approx(error.mean())
    assert figures["within_10pct"] == pytest.approx((error <= 0.1).mean())
    assert figures["n"] == len(batch)


def test_idle_and_dummy_steps_are_neither_fitted_nor_checked(stored: StoredBaseline, build: Build) -> None:
    batch = build("e", "even", seed=7)
    batch.work.kind[:20] = StepKind.IDLE
    batch.work.kind[20:30] = StepKind.DUMMY
    gatherer = StepGatherer(seed=1)
    gatherer.add(batch)
    assert sum(map(len, gatherer.read_parts())) == len(batch) - 30
    assert check([stored], batch).total.rows == len(batch) - 30


def test_model_does_not_differ_from_itself_and_from_a_slower_one_by_its_factor(
    build: Build, fit: Fit
) -> None:
    (old,), (new,) = fit(build("e", "i", seed=1)), fit(build("e", "i", seed=1, factor=1.2))
    assert compare_baselines(old, old).kinds[0].median_ratio == 1.0
    assert compare_baselines(new, old).kinds[0].median_ratio == pytest.approx(1.2, rel=0.03)


def test_few_instances_are_tested_by_blocks_of_time_many_by_instance(build: Build) -> None:
    for count, expected in ((2, 40), (MIN_INSTANCES, MIN_INSTANCES)):
        gatherer = StepGatherer(seed=1)
        for number in range(count):
            gatherer.add(build("e", str(number), seed=number, steps=400))
        parts = gatherer.read_parts()
        groups = build_groups(parts)
        assert len(np.unique(groups)) == expected
        # No group reaches over two instances.
        own = np.repeat(np.arange(count), 400)
        assert all(len(np.unique(own[groups == group])) == 1 for group in np.unique(groups))


def test_neighbours_in_time_share_a_group_whatever_the_order_of_the_rows(build: Build) -> None:
    batch = build("e", "i", seed=1, steps=400)
    order = np.random.default_rng(0).permutation(400)
    work = WorkTable(batch.work.kind[order], batch.work.names, batch.work.values[order])
    gatherer = StepGatherer(seed=1)
    gatherer.add(replace(batch, work=work, cycle_ns=batch.cycle_ns[order], start_ns=batch.start_ns[order]))
    (part,) = gatherer.read_parts()
    assert np.all(np.diff(part.start_ns) >= 0)
    assert np.all(np.diff(build_groups([part])) >= 0)


def test_feature_told_by_some_files_only_is_nan_in_the_others() -> None:
    kind = np.array([2], np.uint8)
    joined = join_work(
        [WorkTable(kind, ("images",), np.array([[3.0]])), WorkTable(kind, ("kv_tokens",), np.array([[5.0]]))]
    )
    assert joined.names == ("kv_tokens", "images")
    np.testing.assert_array_equal(joined.values, [[np.nan, 3], [5, np.nan]])


def test_instances_without_end_share_a_part(build: Build) -> None:
    gatherer = StepGatherer(seed=1)
    batch = build("e", "i", seed=1, steps=MAX_PARTS + 100)
    names = tuple(f"i{number}" for number in range(MAX_PARTS + 100))
    gatherer.add(replace(batch, instance=np.arange(MAX_PARTS + 100, dtype=np.uint32), instance_names=names))
    assert len(gatherer.read_parts()) == MAX_PARTS + 1
    assert gatherer.seen == MAX_PARTS + 100


def test_factor_of_an_instance_that_disagrees_with_itself_is_drawn_to_one() -> None:
    sure, unsure = shrink([("sure", 0.2, 0.001), ("unsure", -0.2, 0.5)])
    assert sure[1] == pytest.approx(0.2, rel=0.01)
    assert abs(unsure[1]) < 0.05
    assert shrink([("alone", 0.2, 0.001)]) == []
