from dataclasses import replace

import pytest

from otel_llmprism.testing.evaluation.fault_kinds import KINDS
from otel_llmprism.testing.evaluation.recording import name_recording
from otel_llmprism.testing.evaluation.run_plan import PlanSizes, build_mixed_plan, build_plan
from otel_llmprism.testing.evaluation.seeds import Purpose, Split, derive_seed
from otel_llmprism.testing.evaluation.suite import plan_full
from otel_llmprism.testing.mini_engine.fault_schedule import Place

SIZES = PlanSizes(warmup_s=60, fault_s=10, rest_s=10, repeats=3)


def test_equal_arguments_give_equal_plans_and_each_number_another() -> None:
    kind = KINDS["operator"]
    plans = [build_plan(kind, Split.TUNING, number, SIZES) for number in (0, 0, 1)]
    assert plans[0] == plans[1]
    assert plans[0].episodes != plans[2].episodes


def test_no_seed_is_used_for_two_purposes_or_two_splits() -> None:
    seeds = [derive_seed(purpose, split, "operator", 0) for purpose in Purpose for split in Split]
    assert len(set(seeds)) == len(seeds)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_episodes_follow_the_warm_up_and_do_not_touch(name: str) -> None:
    plan = build_plan(KINDS[name], Split.TUNING, 0, SIZES)
    assert plan.episodes[0].begin_s >= SIZES.warmup_s
    pairs = zip(plan.episodes, plan.episodes[1:], strict=False)
    assert all(after.begin_s - before.end_s >= SIZES.rest_s for before, after in pairs)
    assert plan.seconds > plan.episodes[-1].end_s
    counts = {one.intensity for one in plan.episodes}
    assert counts == set(KINDS[name].intensities)


def test_engine_is_told_only_of_the_faults_that_strike_inside_it() -> None:
    kinds = [KINDS["slow_rank"], KINDS["cpu_quota_rank"], KINDS["none"]]
    plan = build_mixed_plan(kinds, Split.TUNING, 0, SIZES)
    own = [entry for entry in plan.list_entries() if entry.place is not Place.LOAD]
    assert {entry.place for entry in own} == {Place.RANK}
    assert {entry.rank for entry in own} == {1}
    assert plan.words["ranks"] == 2


def test_full_evaluation_has_thirty_clear_runs_of_each_kind() -> None:
    for name in KINDS:
        episodes = [one for plan in plan_full(Split.EVALUATION, [name]) for one in plan.episodes]
        clear = [one for one in episodes if one.intensity >= 2]
        assert len(clear) >= 30
        assert len({one.id for one in episodes}) == len(episodes)


def test_recording_has_another_name_when_anything_in_its_plan_changes() -> None:
    plan = build_plan(KINDS["operator"], Split.TUNING, 0, SIZES)
    assert name_recording(plan, "mini") != name_recording(replace(plan, seconds=1.0), "mini")
    assert name_recording(plan, "mini") == name_recording(replace(plan), "mini")
