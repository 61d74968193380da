import math
from dataclasses import replace

import pytest

from otel_llmprism.model.findings import Finding, FindingState, Subject
from otel_llmprism.testing.evaluation.fault_kinds import KINDS
from otel_llmprism.testing.evaluation.finding_truth import count_false, is_accepted, judge_episode

S = 1_000_000_000
FOUND = Finding(
    "a", "slow_worker", Subject("rank", "1"), "e", "r", FindingState.OPEN, 0, 100 * S, 102 * S, 102 * S, None,
    3.0, 0.9, 1.0, 1.0, "rank 1 is slow",
)  # fmt: skip
VICTIM = replace(FOUND, id="b", subject=Subject("rank", "0"), confidence=0.5, opened_ns=101 * S)
SLOW_RANK = KINDS["slow_rank"]


def test_delay_runs_from_onset_to_the_first_finding() -> None:
    outcome = judge_episode(SLOW_RANK, 2.0, 100 * S, 110 * S, [FOUND, VICTIM])
    assert outcome.delay_s == 1.0
    assert outcome.ranked == ("slow_worker rank:1", "slow_worker rank:0")
    assert outcome.right_place == 1


def test_victim_before_the_culprit_puts_the_right_one_second() -> None:
    loud = replace(VICTIM, confidence=1.0)
    assert judge_episode(SLOW_RANK, 2.0, 100 * S, 110 * S, [FOUND, loud]).right_place == 2


def test_what_opened_before_or_long_after_is_not_of_this_fault() -> None:
    early, late = replace(FOUND, opened_ns=99 * S), replace(FOUND, opened_ns=121 * S, updated_ns=121 * S)
    outcome = judge_episode(SLOW_RANK, 2.0, 100 * S, 110 * S, [early, late])
    assert not outcome.is_found
    assert math.isinf(outcome.delay_s)
    assert outcome.right_place == 0


def test_the_latest_state_within_the_episode_ranks_a_finding() -> None:
    weak = replace(FOUND, state=FindingState.UPDATED, confidence=0.1, updated_ns=109 * S)
    ranked = judge_episode(SLOW_RANK, 2.0, 100 * S, 110 * S, [FOUND, VICTIM, weak]).ranked
    assert ranked == ("slow_worker rank:0", "slow_worker rank:1")


@pytest.mark.parametrize(
    ("kind", "finding", "subject", "accepted"),
    [
        ("slow_rank", "slow_worker", Subject("rank", "0"), False),
        ("cpu_burn", "cpu_contention", Subject("host", "any"), True),
        ("cpu_burn", "cpu_contention", Subject("engine", "any"), False),
        ("link", "slow_link", Subject("link", "0->1"), True),
        ("link", "slow_link", Subject("link", "0->2"), False),
        ("none", "hang", Subject("engine", "e"), False),
    ],
)
def test_only_the_right_kind_on_the_right_subject_is_accepted(
    kind: str, finding: str, subject: Subject, accepted: bool
) -> None:
    assert is_accepted(KINDS[kind], replace(FOUND, kind=finding, subject=subject)) is accepted


def test_false_findings_are_counted_by_id() -> None:
    again = replace(FOUND, state=FindingState.UPDATED)
    closed = replace(VICTIM, state=FindingState.CLOSED)
    assert [finding.id for finding in count_false([FOUND, again, closed])] == ["a"]
