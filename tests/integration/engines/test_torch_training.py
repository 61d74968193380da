# Real trainings with the engines' torch, two ranks that torchrun started among them: each iteration is there
# once, of each rank, in one run; phases fit into it; who is slow can be seen.
import json
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from otel_llmprism.native.ring_records import Pause, StepKind
from otel_llmprism.testing.engine_program import Recorded, run_program

PROGRAMS = Path(__file__).parent / "programs"
ITERATIONS = 20
SLOW_NS = 30_000_000
PHASES = ("forward_ns", "backward_ns", "optimizer_ns", "data_ns")


def train(python: Path, folder: Path, *arguments: str, ranks: int = 1) -> Recorded:
    words = (str(folder), "--iterations", str(ITERATIONS), *arguments)
    return run_program(python, folder, PROGRAMS / "train_torch.py", *words, ranks=ranks)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("training")


@pytest.fixture(scope="module")
def two_ranks(engine_python: Path, folder: Path) -> Recorded:
    return train(engine_python, folder, "--slow-rank", "1", ranks=2)


def read_own_account(folder: Path, rank: int) -> Any:
    return json.loads((folder / f"rank{rank}.json").read_text())


def test_every_iteration_is_one_step_of_both_ranks_in_one_run(two_ranks: Recorded) -> None:
    steps = two_ranks.list_rows("steps")
    assert [row["step"] for row in steps] == list(range(ITERATIONS))
    assert {row["kind"] for row in steps} == {StepKind.TRAIN}
    assert len(two_ranks.owners) == 1
    expected = [(step, rank) for step in range(ITERATIONS) for rank in range(2)]
    for table in ("ranks", "phases"):
        assert sorted((row["step"], row["rank"]) for row in two_ranks.list_rows(table)) == expected
    assert {(row["rank"], row["dp"]) for row in two_ranks.list_rows("ranks")} == {(0, 0), (1, 1)}


def test_a_step_ends_where_the_program_saw_it_end(two_ranks: Recorded, folder: Path) -> None:
    rows = two_ranks.list_rows("ranks")
    for rank in range(2):
        own_ns = read_own_account(folder, rank)["ends_ns"]
        ends_ns = [row["end_ns"] for row in rows if row["rank"] == rank]
        assert all(end_ns <= own for end_ns, own in zip(ends_ns, own_ns, strict=True))
        assert all(start_ns > own for start_ns, own in zip(ends_ns[1:], own_ns, strict=False))


def test_the_phases_of_an_iteration_fit_into_its_cycle(two_ranks: Recorded) -> None:
    pauses = two_ranks.list_rows("pauses")
    lasted = {
        (row["step"], row["rank"]): row["end_ns"] - row["start_ns"] for row in two_ranks.list_rows("ranks")
    }
    assert pauses
    for row in two_ranks.list_rows("phases"):
        spent_ns = sum(row[name] for name in PHASES)
        assert 0 < spent_ns <= lasted[row["step"], row["rank"]]
        assert all(row[name] > 0 for name in PHASES)
        assert row["micro_batches"] == 1


def test_a_slow_rank_computes_and_the_other_waits_for_it(two_ranks: Recorded) -> None:
    phases = two_ranks.list_rows("phases")
    forward_ns = [median(row["forward_ns"] for row in phases if row["rank"] == rank) for rank in range(2)]
    backward_ns = [median(row["backward_ns"] for row in phases if row["rank"] == rank) for rank in range(2)]
    assert forward_ns[1] - forward_ns[0] > SLOW_NS / 2  # it is slow before its backward pass,
    assert backward_ns[0] - backward_ns[1] > SLOW_NS / 2  # in which the other waits for its gradients


def test_evaluation_and_checkpoint_are_no_part_of_a_cycle(two_ranks: Recorded, folder: Path) -> None:
    pauses = two_ranks.list_rows("pauses")
    assert [pause["reason"] for pause in pauses] == [Pause.EVALUATION, Pause.CHECKPOINT]
    (evaluated_ns, ended_ns), _ = read_own_account(folder, 0)["pauses_ns"][:2]
    assert evaluated_ns <= pauses[0]["start_ns"] < pauses[0]["end_ns"] <= ended_ns
    steps = two_ranks.list_rows("steps")
    ranks = [row for row in two_ranks.list_rows("ranks") if row["rank"] == 0]
    (around,) = [r["step"] for r in ranks if r["start_ns"] < pauses[0]["start_ns"] < r["end_ns"]]
    paused_ns = sum(pause["end_ns"] - pause["start_ns"] for pause in pauses)
    lasted_ns = max(
        row["end_ns"] - row["start_ns"] for row in two_ranks.list_rows("ranks") if row["step"] == around
    )
    assert steps[around]["cycle_ns"] <= lasted_ns - 0.9 * paused_ns


def test_accumulated_gradients_are_one_step_of_several_micro_batches(
    engine_python: Path, tmp_path: Path
) -> None:
    recorded = train(engine_python, tmp_path, "--accumulate", "2")
    phases = recorded.list_rows("phases")
    assert [row["step"] for row in phases] == list(range(ITERATIONS))
    assert sum(row["micro_batches"] for row in phases) == read_own_account(tmp_path, 0)["micro_batches"]
    assert {row["micro_batches"] for row in phases} == {2}


def test_a_compiled_model_trains_as_before(engine_python: Path, tmp_path: Path) -> None:
    recorded = train(engine_python, tmp_path, "--compile")
    assert len(recorded.list_rows("steps")) == ITERATIONS
    assert "llmprism" not in recorded.log


def test_a_program_that_only_imports_torch_has_no_run(engine_python: Path, tmp_path: Path) -> None:
    script = tmp_path / "only_import.py"
    script.write_text(
        "import threading, torch\n"
        "model = torch.nn.Linear(2, 2).eval()\n"
        "assert threading.active_count() == 1, threading.enumerate()\n"
        "torch.save(model.state_dict(), 'model.pt')\n"
    )
    recorded = run_program(engine_python, tmp_path / "run", script)
    assert not recorded.owners
    assert not (tmp_path / "run" / "runtime").exists()


def test_a_trainer_of_hugging_face_is_recorded_by_its_own_count(engine_python: Path, tmp_path: Path) -> None:
    if not list(engine_python.parents[1].glob("lib/python*/site-packages/accelerate")):
        pytest.skip("the engines' environment has no accelerate, which the Trainer needs")
    recorded = run_program(engine_python, tmp_path, PROGRAMS / "train_hf.py", str(tmp_path))
    own = json.loads((tmp_path / "trainer.json").read_text())
    phases = recorded.list_rows("phases")
    assert [row["iteration"] for row in phases] == list(range(own["steps"]))
    assert {row["micro_batches"] for row in phases} == {2}
    # What comes after the last step is in no step and not told.
    reasons = [pause["reason"] for pause in recorded.list_rows("pauses")]
    assert reasons == [Pause.EVALUATION, Pause.CHECKPOINT, Pause.EVALUATION]
    cycles_ns = [row["cycle_ns"] for row in recorded.list_rows("steps")]
    paused_ns = [pause["end_ns"] - pause["start_ns"] for pause in recorded.list_rows("pauses")]
    assert all(duration_ns > 0 for duration_ns in (*cycles_ns, *paused_ns))
