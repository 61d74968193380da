# What a user may name as input: files, folders, ledgers, and what is none of these.
from pathlib import Path

import pytest

from otel_llmprism.receivers.ledger_files import SUFFIX
from otel_llmprism.service.baselines.record_inputs import RecordInputs

RECORDS = "duration_ns,decode_tokens\n5,1\n6,2\n"


def count_rows(inputs: RecordInputs, *places: Path) -> int:
    return sum(len(batch) for _, batch in inputs.read(list(places)))


def test_folder_means_its_step_records(tmp_path: Path) -> None:
    for name in ("a.csv", "b.CSV", "readme.txt"):
        (tmp_path / name).write_text(RECORDS)
    inputs = RecordInputs()
    assert count_rows(inputs, tmp_path) == 4
    assert inputs.describe_problems() == []


def test_folder_with_nothing_in_it_is_said(tmp_path: Path) -> None:
    inputs = RecordInputs()
    assert count_rows(inputs, tmp_path) == 0
    assert "no step records" in inputs.describe_problems()[0]


@pytest.mark.parametrize("name", [f"x{SUFFIX}", "x.csv"])
def test_damaged_ledger_is_said_and_does_not_stop_the_rest(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"LLPSEG\r\n" + b"\xff" * 40)
    (tmp_path / "good.csv").write_text(RECORDS)
    inputs = RecordInputs()
    assert count_rows(inputs, tmp_path / name, tmp_path / "good.csv", tmp_path / "absent.csv") == 2
    problems = inputs.describe_problems()
    assert len(problems) == 2
    assert any("absent.csv" in problem for problem in problems)
    assert any(name in problem for problem in problems)
