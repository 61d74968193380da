# A training's records: one step an iteration and rank, in one run, whoever made it and whenever it is found.
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from otel_llmprism.instrumentation import engine_run, process_run, training_run
from otel_llmprism.instrumentation.engine_run import FOLDER_VARIABLE, EngineRun
from otel_llmprism.instrumentation.iteration_clock import Iteration, PauseSpan
from otel_llmprism.instrumentation.rank_records import RankPlace
from otel_llmprism.instrumentation.training_meeting import Identity, Meeting
from otel_llmprism.instrumentation.training_run import MAX_WAITING, Group, TrainingRun
from otel_llmprism.model.ids import derive_step_trace_id, is_kept_at_random
from otel_llmprism.model.steps import LedgerTables
from otel_llmprism.native.ring import RingReader
from otel_llmprism.native.ring_records import Kept, Mode, Pause, StepKind
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ring import RingAssembler

MS = 1_000_000
RUN = "ab" * 16


@pytest.fixture(autouse=True)
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(engine_run, "start_exporter", lambda _folder, _environment: 0)
    monkeypatch.setattr(process_run, "_absent", {})
    monkeypatch.setattr(process_run, "_open_control", lambda _environment: None)
    monkeypatch.setenv("OTEL_LLMPRISM_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("OTEL_LLMPRISM_RING_SLOTS", "4096")
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)
    process_run.end_run()
    yield tmp_path
    process_run.end_run()


class FakeMeeting:
    """What one rank hears from the others."""

    def __init__(self, *, is_first: bool = True) -> None:
        self.folder: str | None = None
        self.looks = 0
        self._is_first = is_first

    def agree_identity(self, proposed: Identity) -> Identity:
        del proposed
        return Identity("job/dp0", RUN)

    def is_first_here(self) -> bool:
        return self._is_first

    def publish_folder(self, folder: str) -> None:
        self.folder = folder

    def find_folder(self) -> str | None:
        self.looks += 1
        return self.folder


def make_iteration(at: int, *, pauses: tuple[PauseSpan, ...] = ()) -> Iteration:
    start_ns = 1_000 * MS + at * 10 * MS
    return Iteration(start_ns, start_ns + 10 * MS, MS, 2 * MS, 3 * MS, 4 * MS, 2, 100 + at, pauses)


def read_tables(root: Path) -> LedgerTables:
    assembler = RingAssembler(Counters())
    for source, path in enumerate(sorted(root.glob("*/*.ring"))):
        reader = RingReader.open(path)
        assembler.consume(reader.drain(1 << 16), source)
        reader.close()
    tables = assembler.take(1, is_final=True)
    assert tables is not None
    return tables


def find_group(meeting: FakeMeeting, rank: int, ranks_here: int = 2) -> Callable[[], Group]:
    return lambda: Group(RankPlace(rank, dp=rank), cast("Meeting", meeting), ranks_here)


def test_a_training_alone_has_a_run_from_its_first_iteration_on(runtime: Path) -> None:
    training = TrainingRun()
    assert process_run.current_run() is None
    for at in range(5):
        training.book(make_iteration(at))
    run = process_run.current_run()
    assert run is not None
    assert run.description is not None
    assert (run.description.engine_name, run.description.ranks) == ("torch", 1)
    tables = read_tables(runtime)
    assert tables.steps.step.tolist() == [0, 1, 2, 3, 4]
    assert set(tables.steps.kind.tolist()) == {StepKind.TRAIN}
    assert tables.steps.cycle_ns.tolist() == [10 * MS] * 5
    assert tables.phases.iteration.tolist() == [100, 101, 102, 103, 104]
    assert set(tables.phases.forward_ns.tolist()) == {2 * MS}
    assert set(tables.phases.micro_batches.tolist()) == {2}


def test_a_pause_is_taken_off_the_cycle(runtime: Path) -> None:
    training = TrainingRun()
    training.book(make_iteration(0))
    start_ns = make_iteration(1).start_ns
    training.book(make_iteration(1, pauses=(PauseSpan(start_ns, start_ns + 4 * MS, Pause.CHECKPOINT),)))
    assert read_tables(runtime).steps.cycle_ns.tolist() == [10 * MS, 6 * MS]


def test_the_environment_of_child_processes_is_left_alone() -> None:
    TrainingRun().book(make_iteration(0))
    assert process_run.current_run() is not None
    assert FOLDER_VARIABLE not in os.environ


def test_the_first_rank_of_a_node_begins_the_run_that_all_agreed_on() -> None:
    meeting = FakeMeeting()
    TrainingRun(find_group(meeting, 1)).book(make_iteration(0))
    run = process_run.current_run()
    assert run is not None
    assert run.description is not None
    assert (run.description.engine_id, run.description.run) == ("job/dp0", RUN)
    assert run.description.ranks == 2
    assert meeting.folder is not None
    assert Path(meeting.folder).name == RUN


def test_a_rank_that_finds_the_run_late_has_lost_no_iteration(runtime: Path) -> None:
    first, second = FakeMeeting(), FakeMeeting(is_first=False)
    late = TrainingRun(find_group(second, 1))
    for at in range(3):
        late.book(make_iteration(at))
    process_run.end_run()
    maker = TrainingRun(find_group(first, 0))
    for at in range(4):
        maker.book(make_iteration(at))
    process_run._forget_after_fork()  # both are in this one process
    second.folder = first.folder
    late.book(make_iteration(3))
    tables = read_tables(runtime)
    assert tables.steps.step.tolist() == [0, 1, 2, 3]
    assert sorted(zip(tables.phases.step_row.tolist(), tables.phases.rank.tolist(), strict=True)) == [
        (step, rank) for step in range(4) for rank in range(2)
    ]
    assert len(tables.ranks) == 8


def test_a_step_is_kept_by_its_own_id_though_some_before_it_were_lost(runtime: Path) -> None:
    first, second = FakeMeeting(), FakeMeeting(is_first=False)
    late = TrainingRun(find_group(second, 0))
    for at in range(MAX_WAITING + 7):
        late.book(make_iteration(at))
    TrainingRun(find_group(first, 1)).book(make_iteration(0))
    process_run._forget_after_fork()  # both are in this one process
    second.folder = first.folder
    late.book(make_iteration(MAX_WAITING + 7))
    steps = read_tables(runtime).steps
    assert steps.step[0] == late.dropped == 8
    told = zip(steps.step.tolist(), steps.kept.tolist(), steps.kept_probability.tolist(), strict=True)
    for step, kept, probability in told:
        trace_id = derive_step_trace_id("job/dp0", bytes.fromhex(RUN), step)
        assert (kept == Kept.RANDOM) == is_kept_at_random(trace_id, probability)


def test_only_rank_0_tells_of_steps_and_pauses(runtime: Path) -> None:
    meeting = FakeMeeting()
    training = TrainingRun(find_group(meeting, 3))
    training.book(make_iteration(0, pauses=(PauseSpan(1, 5 * MS, Pause.EVALUATION),)))
    readers = [RingReader.open(path) for path in runtime.glob("*/*.ring")]
    slots = b"".join(reader.drain(100) for reader in readers)
    assert sorted(slots[at] for at in range(0, len(slots), 128)) == [4, 12]  # STEP_RANK, STEP_PHASES


def test_what_waits_for_a_run_is_bounded_and_the_newest_is_kept(runtime: Path) -> None:
    meeting = FakeMeeting(is_first=False)
    training = TrainingRun(find_group(meeting, 1))
    for at in range(MAX_WAITING + 10):
        training.book(make_iteration(at))
    assert training.dropped == 10
    assert meeting.looks == MAX_WAITING + 10
    assert not list(runtime.glob("*/*.ring"))


def test_a_rank_that_never_finds_a_run_gives_up() -> None:
    meeting = FakeMeeting(is_first=False)
    training = TrainingRun(find_group(meeting, 1))
    for at in range(training_run.MAX_LOOKS + 2):
        training.book(make_iteration(at))
    assert training.is_over
    assert meeting.looks == training_run.MAX_LOOKS + 1


def test_a_node_without_a_folder_turns_its_ranks_off() -> None:
    meeting = FakeMeeting(is_first=False)
    meeting.folder = ""
    training = TrainingRun(find_group(meeting, 1))
    training.book(make_iteration(0))
    assert training.is_over


def test_a_process_of_a_serving_engine_never_gets_a_training_run(monkeypatch: pytest.MonkeyPatch) -> None:
    serving = process_run.begin_run("vllm", "1", environment=dict(os.environ))
    training = TrainingRun()
    training.book(make_iteration(0))
    assert process_run.current_run() is serving
    assert training.is_over
    process_run.end_run()
    monkeypatch.setenv(FOLDER_VARIABLE, "/somewhere")  # a child of one
    child = TrainingRun()
    child.book(make_iteration(0))
    assert child.is_over


def test_a_training_replaces_the_run_of_generations_before_it() -> None:
    process_run.begin_run("transformers", "1", environment=dict(os.environ))
    TrainingRun().book(make_iteration(0))
    run = process_run.current_run()
    assert isinstance(run, EngineRun)
    assert run.description is not None
    assert run.description.engine_name == "torch"


def test_disabled_it_stays_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_LLMPRISM_DISABLED", "true")
    training = TrainingRun()
    training.book(make_iteration(0))
    assert training.is_over


def test_switched_off_it_records_nothing_until_it_is_woken(
    runtime: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_LLMPRISM_MODE", "off")
    training = TrainingRun()
    for at in range(3):
        training.book(make_iteration(at))
    assert not training.is_over
    assert list(runtime.iterdir()) == []
    run = process_run.wake_run(Mode.SENTINEL)
    assert run is not None
    assert run.description is not None
    assert run.description.engine_name == "torch"
    for at in range(3, 6):
        training.book(make_iteration(at))
    training.write_known(is_final=True)
    assert read_tables(runtime).steps.step.tolist() == [3, 4, 5], "each rank counts alike, asleep or not"


def test_only_one_rank_of_a_node_begins_when_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_LLMPRISM_MODE", "off")
    monkeypatch.setenv("LOCAL_RANK", "1")
    TrainingRun().book(make_iteration(0))
    assert not process_run.can_begin()
    assert process_run.wake_run(Mode.SENTINEL) is None
