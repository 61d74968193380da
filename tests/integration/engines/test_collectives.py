# Collectives between real processes, with the engines' own torch: who waits for whom.
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from otel_llmprism.native.ring_records import UNKNOWN_NS, CollectiveOp
from otel_llmprism.testing.engine_overlay import SOURCES
from otel_llmprism.testing.programs import find_free_port

PROGRAMS = Path(__file__).parent / "programs"
LATE_S = 0.4
LATE_STEP = 1
TIMEOUT_S = 240


def run_ranks(python: Path, program: Path, arguments: Sequence[str], size: int = 2) -> list[Any]:
    """Run one process a rank to their ends and return what each printed last."""
    started = [
        subprocess.Popen(
            [python, program, str(rank), *arguments],
            env={"PYTHONPATH": str(SOURCES), "PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank in range(size)
    ]
    try:
        told = [process.communicate(timeout=TIMEOUT_S) for process in started]
    finally:
        for process in started:
            if process.poll() is None:
                process.kill()
                process.wait()
    assert [process.returncode for process in started] == [0] * size, told
    return [json.loads(out.splitlines()[-1]) for out, _ in told]


@pytest.fixture(scope="module", params=["before", "after"])
def hooked(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def ranks(engine_python: Path, tmp_path_factory: pytest.TempPathFactory, hooked: str) -> list[Any]:
    meeting = str(tmp_path_factory.mktemp("gloo") / "meeting")
    return run_ranks(engine_python, PROGRAMS / "gloo_rank.py", ["2", meeting, "1", str(LATE_S), hooked])


def read_waits(rank: Any) -> dict[int, float]:
    return {row["step"]: row["wait_ns"] / 1e9 for row in rank["STEP_RANK"]}


def test_a_late_rank_makes_the_other_wait_and_waits_least_itself(ranks: list[Any]) -> None:
    victim, culprit = (read_waits(rank)[LATE_STEP] for rank in ranks)
    assert victim - culprit == pytest.approx(LATE_S, abs=LATE_S / 2)
    assert victim >= LATE_S / 2


def test_the_wait_is_that_of_the_collective_at_which_the_rank_was_late(ranks: list[Any]) -> None:
    victim = [row for row in ranks[0]["COLLECTIVE"] if row["step"] == LATE_STEP]
    longest = max(victim, key=lambda row: row["end_ns"] - row["start_ns"])
    assert (longest["op"], longest["seq"]) == (CollectiveOp.ALL_REDUCE, 1)


def test_all_ranks_number_a_groups_collectives_alike(ranks: list[Any]) -> None:
    shared = ("step", "group", "seq")
    first, second = ([tuple(row[name] for name in shared) for row in rank["COLLECTIVE"]] for rank in ranks)
    assert first == second
    assert len(set(first)) == len(first)


def test_each_collective_tells_its_operation_and_its_bytes(ranks: list[Any]) -> None:
    for rank, last in zip(ranks, (CollectiveOp.SEND, CollectiveOp.RECV), strict=True):
        told = [(row["op"], row["bytes"]) for row in rank["COLLECTIVE"] if row["step"] == 0]
        assert told == [
            (CollectiveOp.BROADCAST, 4000),
            (CollectiveOp.ALL_REDUCE, 4000),
            (CollectiveOp.ALL_REDUCE, 4000),
            (CollectiveOp.ALL_GATHER, 4000),
            (last, 4000),
            (CollectiveOp.BARRIER, 0),
        ]


def test_without_a_device_the_host_clock_tells(ranks: list[Any]) -> None:
    rows = [row for rank in ranks for row in rank["COLLECTIVE"]]
    assert all(row["device_ns"] == UNKNOWN_NS for row in rows)
    assert all(row["start_ns"] <= row["end_ns"] < UNKNOWN_NS for row in rows)


def test_a_sampled_step_compiles_nothing_anew(ranks: list[Any]) -> None:
    assert [rank["graphs"] for rank in ranks] == [1, 1]


def test_removed_hooks_leave_torch_as_it_was(ranks: list[Any]) -> None:
    assert [rank["left"] for rank in ranks] == [[], []]


@pytest.fixture(scope="module")
def coordinators(engine_python: Path) -> list[Any]:
    return run_ranks(engine_python, PROGRAMS / "vllm_group_rank.py", [str(find_free_port()), str(LATE_S)])


def test_vllms_shared_memory_collectives_are_seen_where_torch_is_not_asked(coordinators: list[Any]) -> None:
    for rank in coordinators:
        assert rank["means"] == "_CPUSHMDistributed"
        assert rank["absent"] == []
        told = [(row["op"], row["seq"], row["bytes"]) for row in rank["rows"] if "op" in row]
        assert told == [
            (CollectiveOp.ALL_REDUCE, 0, 64 * 64 * 4),
            (CollectiveOp.ALL_REDUCE, 1, 64 * 64 * 4),
            (CollectiveOp.ALL_GATHER, 2, 64 * 64 * 4),
            (CollectiveOp.GATHER, 3, 64 * 64 * 4),
            (CollectiveOp.BARRIER, 4, 0),
        ]


def test_vllms_ranks_agree_on_the_group_and_the_culprit_waits_least(coordinators: list[Any]) -> None:
    groups = {row["group"] for rank in coordinators for row in rank["rows"] if "group" in row}
    assert len(groups) == 1
    victim, culprit = (rank["rows"][-1]["wait_ns"] / 1e9 for rank in coordinators)
    assert victim - culprit == pytest.approx(LATE_S, abs=LATE_S / 2)
