import numpy as np
import pytest

from otel_llmprism.testing.evaluation.replay import StepScores
from otel_llmprism.testing.evaluation.step_truth import Counted, count_flags, flag_by_oracle, label_steps
from otel_llmprism.testing.faults.fault_ledger import FaultEntry

MS = 1_000_000


def build_steps(cycles_ms: list[int], flagged: list[int]) -> StepScores:
    cycle = np.array(cycles_ms, dtype=np.uint64) * np.uint64(MS)
    ready = np.cumsum(cycle, dtype=np.uint64)
    nothing = np.zeros(len(cycle))
    numbers = np.arange(len(cycle), dtype=np.uint64)
    return StepScores(numbers, ready, cycle, nothing, nothing, np.array(flagged, dtype=np.uint8))


def fault(start_ms: int, end_ms: int) -> FaultEntry:
    return FaultEntry("software", "engine", start_ms * MS, end_ms * MS, 2.0, "f", "operator")


def test_step_is_abnormal_from_fifteen_percent_of_what_it_would_have_taken() -> None:
    steps = build_steps([10] * 4 + [23, 22] + [10] * 4, [0] * 10)
    added = {4: 3 * MS, 5: 2 * MS}  # 3 of 20, 2 of 20
    labels = label_steps(steps, added, [], is_known=True)
    assert labels.tolist() == [0, 0, 0, 0, 1, -1, 0, 0, 0, 0]


def test_first_three_steps_of_an_incident_and_those_it_did_not_delay_are_not_scored() -> None:
    steps = build_steps([10, 20, 20, 20, 20, 10, 10], [0] * 7)
    added = dict.fromkeys((1, 2, 3, 4), 10 * MS)
    labels = label_steps(steps, added, [fault(12, 95)], is_known=True)
    assert labels.tolist() == [0, -1, -1, -1, 1, -1, 0]


def test_fault_whose_delay_nobody_knows_makes_no_step_abnormal() -> None:
    labels = label_steps(build_steps([10] * 4, [0] * 4), {}, [fault(15, 35)], is_known=False)
    assert labels.tolist() == [0, -1, -1, -1]


def test_flags_are_counted_against_labels_and_the_oracle_is_right() -> None:
    steps = build_steps([10, 20, 20, 10, 10], [1, 1, 0, 0, 0])
    added = {1: 10 * MS, 2: 10 * MS}
    labels = label_steps(steps, added, [], is_known=True)
    counted = count_flags(labels, steps.is_flagged > 0)
    assert counted == Counted(hits=1, misses=1, false_flags=1, passed=2)
    assert (counted.normal, counted.abnormal) == (3, 2)
    assert count_flags(labels, flag_by_oracle(steps, added)) == Counted(2, 0, 0, 3)


def test_counts_add_up() -> None:
    assert Counted(1, 2, 3, 4) + Counted(1, 1, 1, 1) == Counted(2, 3, 4, 5)


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_oracle_flags_no_step_below_the_limit(share: float) -> None:
    steps = build_steps([100], [0])
    assert not flag_by_oracle(steps, {0: int(share * 100 * MS)}).any()
