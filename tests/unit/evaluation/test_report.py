import math
from pathlib import Path

from otel_llmprism.testing.evaluation.finding_truth import Outcome
from otel_llmprism.testing.evaluation.judge_recording import FlagScore, RecordingScore
from otel_llmprism.testing.evaluation.live import LiveOutcome, Seen, judge_live
from otel_llmprism.testing.evaluation.report import tell_live, write_tables
from otel_llmprism.testing.evaluation.results_file import replace_section
from otel_llmprism.testing.evaluation.step_truth import Counted
from otel_llmprism.testing.faults.fault_ledger import FaultEntry

S = 1_000_000_000


def test_tables_state_counts_with_their_intervals() -> None:
    flag = FlagScore("operator", 2.0, Counted(90, 10, 1, 899), Counted(100, 0, 0, 900), 2.0)
    right = Outcome("operator", 2.0, 1.5, ("step_regression engine:e",), 1)
    wrong = Outcome("operator", 2.0, math.inf, (), 0)
    score = RecordingScore("one", [right, wrong], [flag], ["hang engine:e"], 86_400.0, 1000)
    text = write_tables([score])
    assert "| operator | 2x | 100 / 900 (10.0%) | 0.111% (0.020% to 0.627%) | 0.9424 | 1.0000 | 2 |" in text
    assert "| operator | 2x | 2 | 1.5 s (most 1.5 s) | 1/2 (9% to 91%) | 1/2 (9% to 91%)" in text
    assert "1/2 (9% to 91%) | 1/2 (9% to 91%) | 1x nothing |" in text
    assert "1 in 1000 steps and 1.000 engine-days; 95 % upper bound 4.7 an engine-day." in text


def test_faults_of_unknown_delay_have_no_step_figures() -> None:
    assert "No fault here has a delay" in write_tables([RecordingScore("one")])


def test_section_is_replaced_and_the_text_around_it_stays(tmp_path: Path) -> None:
    path = tmp_path / "evaluation.md"
    path.write_text("# Before\n")
    replace_section(path, "mini-full", "first")
    replace_section(path, "vllm-full", "other")
    replace_section(path, "mini-full", "second")
    text = path.read_text()
    assert "first" not in text
    assert text.startswith("# Before\n\n<!-- mini-full -->\nsecond\n<!-- end of mini-full -->")
    assert "other" in text


def test_live_finding_counts_from_onset_to_open_and_to_the_page() -> None:
    fault = FaultEntry("software", "1", 10 * S, 20 * S, 2.0, "f", "slow_rank")
    finding = {
        "id": "a",
        "kind": "slow_worker",
        "subject": {"type": "rank", "id": "1"},
        "opened_ns": 1011 * S,
        "occurrence": 0,
    }
    early = {**finding, "id": "b", "opened_ns": 1009 * S}
    seen = [Seen(finding, 1012 * S), Seen(early, 1009 * S)]
    outcome = judge_live(fault, seen, 1000 * S)
    assert (outcome.opened_s, outcome.seen_s, outcome.is_right) == (1.0, 2.0, True)
    assert outcome.names == ("slow_worker rank:1",)


def test_fault_that_nobody_saw_live_is_told_as_missed() -> None:
    outcome = LiveOutcome("link", 2.0, math.inf, math.inf, (), is_right=False)
    assert "| link | 2x | 0/1 (0% to 79%) | - | - | 0/1 (0% to 79%) |" in tell_live([outcome])
