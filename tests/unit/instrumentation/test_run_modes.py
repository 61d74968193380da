# Modes of a run while it is under way: what is recorded in each, and that nothing reaches over a sleep.
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_llmprism.instrumentation import engine_run
from otel_llmprism.instrumentation.engine_run import FOLDER_VARIABLE, EngineRun, start_engine_run
from otel_llmprism.instrumentation.guard import HookState, NullRing
from otel_llmprism.instrumentation.rank_records import RankPlace
from otel_llmprism.instrumentation.step_records import NO_STEP, EngineState
from otel_llmprism.model.steps import LedgerTables
from otel_llmprism.native.ring import RingReader
from otel_llmprism.native.ring_records import HookOff, Kept, Mode
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ring import RingAssembler

STATE = EngineState()


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(engine_run, "start_exporter", lambda _folder, _environment: 0)
    return {"OTEL_LLMPRISM_RUNTIME_DIR": str(tmp_path), "OTEL_LLMPRISM_RING_SLOTS": "1024"}


@pytest.fixture
def run(environment: dict[str, str]) -> Iterator[EngineRun]:
    started = start_engine_run("mini", "1", environment=environment)
    yield started
    started.close()


def record(run: EngineRun, tokens: dict[str, int], joined: list[str] | None = None) -> int:
    ticket = run.steps.record_scheduled(tokens, (), STATE, 1, 2, joined=joined)
    run.steps.record_output(ticket, 3)
    return ticket.step_id


def read_tables(environment: dict[str, str]) -> LedgerTables:
    (path,) = Path(environment[FOLDER_VARIABLE]).glob("*.ring")
    reader = RingReader.open(path)
    assembler = RingAssembler(Counters())
    assembler.consume(reader.drain(1024), 0)
    reader.close()
    tables = assembler.take(10, is_final=True)
    assert tables is not None
    return tables


def test_off_records_nothing_and_costs_no_step_id(run: EngineRun, environment: dict[str, str]) -> None:
    assert record(run, {"a": 1}) == 0
    run.set_mode(Mode.OFF)
    assert run.steps.record_scheduled({"a": 1}, (), STATE, 1, 2) == NO_STEP
    run.set_mode(Mode.SENTINEL)
    assert record(run, {"a": 1}) == 1
    assert read_tables(environment).steps.step.tolist() == [0, 1]


def test_who_ran_before_a_sleep_is_not_taken_to_run_after_it(
    run: EngineRun, environment: dict[str, str]
) -> None:
    record(run, {"a": 1, "b": 1})
    run.set_mode(Mode.OFF)
    run.steps.record_left(["a"])  # nobody hears it
    run.set_mode(Mode.SENTINEL)
    record(run, {"b": 1, "c": 1}, joined=["c"])
    tables = read_tables(environment)
    assert tables.steps.requests.tolist() == [2, 2]
    second = tables.members.change[tables.members.step_row == 1].tolist()
    assert len(second) == 3, "the set is told anew: a reset and both that run"


def test_a_hook_that_is_off_for_good_stays_off_after_a_sleep() -> None:
    hook = HookState("step", NullRing())
    hook._switch_off(HookOff.FAILED)
    hook.set_asleep(True)
    hook.set_asleep(False)
    assert hook.is_off


def test_a_rank_recorder_made_while_off_wakes_with_the_run(run: EngineRun) -> None:
    run.set_mode(Mode.OFF)
    recorder = run.build_rank_recorder(RankPlace(rank=0))
    assert recorder.hook.is_off
    run.set_mode(Mode.SENTINEL)
    assert not recorder.hook.is_off


def test_deep_steps_are_kept_and_then_it_is_as_before(run: EngineRun, environment: dict[str, str]) -> None:
    assert run.request_deep_steps(2)
    for _ in range(4):
        record(run, {"a": 1})
    steps = read_tables(environment).steps
    assert [kept == Kept.DEEP for kept in steps.kept.tolist()] == [True, True, False, False]
    assert steps.mode.tolist() == [Mode.DEEP, Mode.DEEP, Mode.SENTINEL, Mode.SENTINEL]
    assert run.keeper.deep_left == 0


def test_deep_steps_are_refused_while_off(run: EngineRun) -> None:
    run.set_mode(Mode.OFF)
    assert not run.request_deep_steps(2)
    assert run.keeper.deep_left == 0


def test_a_run_that_never_began_has_no_mode_but_off(environment: dict[str, str]) -> None:
    run = start_engine_run("mini", "1", environment={**environment, "OTEL_LLMPRISM_MODE": "off"})
    run.set_mode(Mode.DEEP)
    assert run.mode is Mode.OFF
