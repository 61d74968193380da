from pathlib import Path

import pytest

from otel_llmprism.testing.faults.fault_ledger import FaultEntry, read_ledger, write_ledger

ENTRY = FaultEntry("software", "engine", 10, 20, 1.3, "f1", "operator")


def test_ledger_comes_back_in_order_of_time(tmp_path: Path) -> None:
    earlier = FaultEntry("host", "1", 1, 5, 2.0, "f0", "cpu_quota_rank")
    write_ledger(tmp_path / "faults.jsonl", [ENTRY, earlier])
    assert read_ledger(tmp_path / "faults.jsonl") == [earlier, ENTRY]


def test_line_that_is_no_entry_is_refused_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "faults.jsonl"
    path.write_text('{"layer": "host"}\n')
    with pytest.raises(ValueError, match=r"faults\.jsonl: not a fault ledger"):
        read_ledger(path)
