import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from otel_llmprism.service.exporter_process.placement import (
    Placement,
    choose_cores,
    list_affinities,
    yield_priority,
)

ALL = frozenset(range(8))
SLEEPER = """
import os, sys, threading
def sleep_on(core):
    os.sched_setaffinity(0, {core})
    ready.release()
    forever.acquire()
ready, forever = threading.Semaphore(0), threading.Semaphore(0)
threading.Thread(target=sleep_on, args=(int(sys.argv[1]),), daemon=True).start()
ready.acquire()
print("ready", flush=True)
sys.stdin.read()
"""


def test_cores_that_a_thread_of_the_engine_is_bound_to_are_avoided() -> None:
    assert choose_cores(ALL, [ALL, frozenset({0}), frozenset({1, 2})]) == {3, 4, 5, 6, 7}


def test_unbound_engine_leaves_all_cores() -> None:
    assert choose_cores(ALL, [ALL, ALL | {9}]) == ALL
    assert choose_cores(ALL, []) == ALL


def test_where_groups_of_cores_cover_all_only_single_places_are_avoided() -> None:
    sockets = [frozenset({0, 1, 2, 3}), frozenset({4, 5, 6, 7})]
    places = [frozenset({core}) for core in (0, 1, 2, 4, 5, 6)]
    assert choose_cores(ALL, sockets + places) == {3, 7}


def test_engine_that_is_bound_to_every_core_leaves_the_exporter_where_it_is() -> None:
    assert choose_cores(ALL, [frozenset({core}) for core in ALL]) == ALL


def test_cores_the_exporter_may_not_use_are_never_chosen() -> None:
    assert choose_cores(frozenset({2, 3}), [frozenset({2})]) == {3}
    assert choose_cores(frozenset({2}), [frozenset({2})]) == {2}


@pytest.fixture
def bound_engine() -> Iterator[subprocess.Popen[str]]:
    """A process that may run anywhere, with one thread bound to a core."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("one core: nowhere to go")
    command = [sys.executable, "-c", SLEEPER, str(cores[0])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def test_all_threads_of_the_exporter_leave_the_core_and_come_back_when_it_is_free(
    bound_engine: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: dict[int, set[int]] = {}
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, cores: moved.update({thread: set(cores)}))
    everywhere = set(os.sched_getaffinity(0))
    mine = Placement()
    stop = threading.Event()
    sender = threading.Thread(target=stop.wait)
    sender.start()
    try:
        assert mine.follow([bound_engine.pid]) == everywhere - {min(everywhere)}
        assert moved[threading.get_native_id()] == moved[sender.native_id or 0]
        moved.clear()
        mine.follow([bound_engine.pid])
        assert not moved, "nothing changed"
        bound_engine.kill()
        bound_engine.wait()
        assert mine.follow([bound_engine.pid]) == everywhere
        assert moved[threading.get_native_id()] == everywhere
    finally:
        stop.set()
        sender.join()


def test_exporter_that_was_started_by_a_bound_thread_may_run_where_the_engine_may(
    bound_engine: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    everywhere = set(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "sched_setaffinity", lambda _thread, _cores: None)
    mine = Placement()
    mine._own = mine._chosen = frozenset({min(everywhere)})
    assert mine.follow([bound_engine.pid]) == everywhere - {min(everywhere)}
    assert mine.follow([]) == {min(everywhere)}, "no engine, nothing more than we had"


def test_process_that_is_gone_binds_nothing() -> None:
    assert list_affinities(2**22 + 1) == set()


def test_exporter_is_niced_and_of_the_batch_class() -> None:
    code = (
        "import os; from otel_llmprism.service.exporter_process.placement import yield_priority;"
        "before = os.nice(0); yield_priority();"
        "print(os.nice(0) == min(before + 10, 19), os.sched_getscheduler(0) == os.SCHED_BATCH)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["True", "True"]


def test_sandbox_that_refuses_the_batch_class_still_gets_a_niced_exporter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "nice", asked.append)
    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    yield_priority()
    assert asked == [10]
