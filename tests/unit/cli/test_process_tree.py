# Who belongs to the engine of a pid, from a table of processes and the sockets that are there.
import os
from pathlib import Path
from typing import Any

import pytest

from otel_llmprism.cli import engine_control
from otel_llmprism.cli.engine_control import EngineProcess, NotInstrumentedError, find_engine, wake_engine
from otel_llmprism.cli.process_tree import ProcessEntry, check_process, list_relatives, read_processes
from otel_llmprism.config.errors import ConfigError

# shell 10 -> server 20 -> core 30 -> workers 40, 41; shell 10 -> another server 50 -> 60
PARENTS = {10: 1, 20: 10, 30: 20, 40: 30, 41: 30, 50: 10, 60: 50}
PROCESSES = {pid: ProcessEntry(pid, parent, os.geteuid()) for pid, parent in PARENTS.items()}


def sockets(*pids: int) -> dict[int, Path]:
    return {pid: Path(f"/run/{pid}.sock") for pid in pids}


def test_any_process_of_an_engine_finds_all_of_it_and_no_other() -> None:
    there = sockets(20, 30, 40, 41, 50, 60)
    for pid in (20, 30, 40, 41):
        assert list_relatives(pid, PROCESSES, there) == [20, 30, 40, 41]
    assert list_relatives(60, PROCESSES, there) == [50, 60]


def test_a_shell_finds_what_it_started_and_a_stranger_only_itself() -> None:
    assert list_relatives(10, PROCESSES, sockets(20)) == [10, 20, 50, 30, 60, 40, 41]
    assert list_relatives(50, PROCESSES, sockets(20, 30)) == [50, 60]


def test_this_process_is_found_with_its_parent() -> None:
    own = read_processes()[os.getpid()]
    assert (own.parent, own.uid) == (os.getppid(), os.geteuid())


def test_no_such_process_and_not_yours_say_how_to_mend() -> None:
    with pytest.raises(ConfigError, match="no process 77"):
        check_process(77, PROCESSES)


def test_anothers_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ConfigError, match="uid 0"):
        check_process(20, {20: ProcessEntry(20, 10, 0)})


def arrange(monkeypatch: pytest.MonkeyPatch, statuses: dict[int, dict[str, Any]]) -> list[tuple[int, Any]]:
    asked: list[tuple[int, Any]] = []

    def ask(path: Path, request: dict[str, object]) -> dict[str, Any]:
        pid = int(path.stem)
        if request["command"] == "status":
            return statuses[pid]
        asked.append((pid, request.get("run_folder")))
        return {"ok": True, "pid": pid, "run_folder": request.get("run_folder") or f"/run/of-{pid}"}

    monkeypatch.setattr(engine_control, "read_processes", lambda: PROCESSES)
    monkeypatch.setattr(engine_control, "find_process_sockets", lambda _pid, _all: sockets(*statuses))
    monkeypatch.setattr(engine_control, "ask_process", ask)
    return asked


def test_processes_of_another_run_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    arrange(monkeypatch, {20: {"run": "a"}, 50: {"run": "b"}, 60: {"run": "b"}, 41: {}})
    assert [process.pid for process in find_engine(20)] == [20, 41]
    assert [process.pid for process in find_engine(60)] == [50, 60]


def test_a_launcher_stands_for_all_that_it_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    arrange(monkeypatch, {20: {"run": "a"}, 50: {"run": "b"}})
    assert [process.pid for process in find_engine(10)] == [20, 50]


def test_a_process_of_the_same_run_elsewhere_in_the_tree_belongs(monkeypatch: pytest.MonkeyPatch) -> None:
    arrange(monkeypatch, {20: {"run": "a"}, 60: {"run": "a"}})
    assert [process.pid for process in find_engine(20)] == [20, 60]


def test_nobody_instrumented_names_the_two_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    arrange(monkeypatch, {})
    with pytest.raises(NotInstrumentedError, match=r"opentelemetry-instrument.*attach 20"):
        find_engine(20)


def test_one_begins_the_run_and_all_others_join_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = arrange(monkeypatch, {20: {"can_begin": True}, 30: {"can_begin": False}, 40: {}})
    answers = wake_engine(find_engine(40))
    assert asked == [(20, ""), (30, "/run/of-20"), (40, "/run/of-20")]
    assert list(answers) == [20, 30, 40]


def test_who_would_begin_too_joins_the_run_of_its_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = arrange(monkeypatch, {20: {"can_begin": True}, 30: {"can_begin": True}})
    wake_engine(find_engine(30))
    assert asked == [(20, ""), (30, "/run/of-20")]


def test_replicas_below_a_launcher_without_a_run_begin_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    begins = {"can_begin": True}
    asked = arrange(monkeypatch, {10: {}, 20: begins, 30: {}, 50: begins, 60: {}})
    wake_engine(find_engine(30))
    assert asked[:4] == [(20, ""), (50, ""), (30, "/run/of-20"), (60, "/run/of-50")]
    assert asked[4] == (10, ""), "the launcher of two joins neither"


def test_ranks_beside_the_one_that_begins_join_its_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = arrange(monkeypatch, {40: {"can_begin": True}, 41: {}})
    wake_engine(find_engine(30))
    assert asked == [(40, ""), (41, "/run/of-40")]


def test_a_run_that_is_there_is_joined_and_none_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = arrange(monkeypatch, {20: {"can_begin": True}, 30: {"run": "a", "run_folder": "/run/r1"}})
    engine = find_engine(30)
    assert isinstance(engine[0], EngineProcess)
    wake_engine(engine)
    assert asked == [(20, "/run/r1"), (30, "/run/r1")]
