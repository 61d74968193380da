# A real engine under a few clear faults, judged by the sentinel as it is: contracts, not figures on an edge.

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


def test_every_clear_fault_is_found(score: RecordingScore) -> None:
    missed = [outcome.kind for outcome in score.outcomes if not outcome.is_found]
    assert len(score.outcomes) == 4
    assert missed == []


def test_right_cause_is_among_the_first_three(score: RecordingScore) -> None:
    wrong = [outcome for outcome in score.outcomes if not 1 <= outcome.right_place <= 3]
    assert wrong == []


def test_slow_rank_is_named_and_only_it(score: RecordingScore) -> None:
    (outcome,) = [one for one in score.outcomes if one.kind == "slow_rank"]
    assert outcome.ranked[:1] == ("slow_worker rank:1",)
    assert "slow_worker rank:0" not in outcome.ranked


def test_delays_that_double_a_step_are_flagged(score: RecordingScore) -> None:
    """By far most of them: a flag has its own limit, and this machine other work."""
    counted = [flag.counted for flag in score.flags]
    hits, abnormal = sum(one.hits for one in counted), sum(one.abnormal for one in counted)
    assert abnormal > 100
    assert hits > 0.8 * abnormal
