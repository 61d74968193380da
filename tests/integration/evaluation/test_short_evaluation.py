# A real engine under a few clear faults, judged by the sentinel as it is: contracts, not figures. The figures
# need many runs on a quiet machine (make evaluate).

import pytest

from otel_llmprism.testing.evaluation.judge_recording import RecordingScore, judge_recording
from otel_llmprism.testing.evaluation.record_mini import record_mini
from otel_llmprism.testing.evaluation.report import write_tables
from otel_llmprism.testing.evaluation.seeds import Split
from otel_llmprism.testing.evaluation.suite import plan_short
from otel_llmprism.testing.faults.fault import UnavailableError

pytestmark = pytest.mark.timeout(900)
SEED = 0


@pytest.fixture(scope="module")
def score(tmp_path_factory: pytest.TempPathFactory) -> RecordingScore:
    """One engine's life with each fault once; every test reads it."""
    (plan,) = plan_short(Split.TUNING)
    try:
        recording = record_mini(plan, tmp_path_factory.mktemp("recordings"))
    except UnavailableError as missing:
        pytest.skip(f"this machine cannot make the faults: {missing}")
    machine = recording.read_facts()["machine"]
    if machine["load_before"] > machine["cores"]:
        pytest.skip(
            f"the machine is busy with other work (load {machine['load_before']}): nothing to judge by"
        )
    judged = judge_recording(recording, SEED)
    print(write_tables([judged]))  # noqa: T201  shown with a failure
    return judged


def test_every_episode_is_judged_by_its_steps_and_its_findings(score: RecordingScore) -> None:
    assert sorted(outcome.kind for outcome in score.outcomes) == ["operator", "scheduler", "slow_rank"]
    assert sum(flag.counted.abnormal for flag in score.flags) > 100
    assert score.quiet_steps > 5_000


def test_a_clear_fault_is_found(score: RecordingScore) -> None:
    """How many of them, and how often the cause is right, is docs/evaluation.md's to say."""
    assert [outcome for outcome in score.outcomes if outcome.is_found]


def test_nothing_is_found_while_nothing_is_wrong(score: RecordingScore) -> None:
    assert score.false_findings == []


def test_the_rank_that_waits_is_never_named(score: RecordingScore) -> None:
    (outcome,) = [one for one in score.outcomes if one.kind == "slow_rank"]
    assert "slow_worker rank:0" not in outcome.ranked
