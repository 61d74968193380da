# One run a process: begun, joined, replaced, forgotten by a forked child.
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from otel_llmprism.instrumentation import engine_run, process_run
from otel_llmprism.instrumentation.engine_run import FOLDER_VARIABLE


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    monkeypatch.setattr(engine_run, "start_exporter", lambda _folder, _environment: 0)
    monkeypatch.setattr(process_run, "_absent", {})
    yield {"OTEL_LLMPRISM_RUNTIME_DIR": str(tmp_path), "OTEL_LLMPRISM_RING_SLOTS": "1024"}
    process_run.end_run()


def test_a_run_begun_here_is_this_processs_run(environment: dict[str, str]) -> None:
    run = process_run.begin_run("mini", "1", environment=environment)
    assert run is not None
    assert process_run.current_run() is run
    assert process_run.join_run("core", environment) is run


def test_a_second_engine_gets_a_run_of_its_own(environment: dict[str, str]) -> None:
    first = process_run.begin_run("mini", "1", environment=environment)
    second = process_run.begin_run("mini", "1", environment=environment)
    assert first is not None
    assert second is not None
    assert first.description is not None
    assert second.description is not None
    assert first.description.run != second.description.run


def test_a_child_joins_the_run_its_environment_names_once(environment: dict[str, str]) -> None:
    begun = process_run.begin_run("mini", "1", environment=environment)
    assert begun is not None
    assert begun.description is not None
    process_run._forget_after_fork()  # as in a child that has its parent's memory
    joined = process_run.join_run("core", environment)
    assert joined is not None
    assert joined.description == begun.description
    assert process_run.join_run("core", environment) is joined
    rings = sorted(path.name for path in Path(environment[FOLDER_VARIABLE]).glob("*.ring"))
    assert len([name for name in rings if name.startswith("core-")]) == 1
    begun.close()


def test_a_forked_child_has_no_run(environment: dict[str, str]) -> None:
    process_run.begin_run("mini", "1", environment=environment)
    pid = os.fork()
    if pid == 0:
        os._exit(0 if process_run.current_run() is None else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert process_run.current_run() is not None


def test_off_means_no_run(environment: dict[str, str]) -> None:
    assert (
        process_run.begin_run("mini", "1", environment={**environment, "OTEL_LLMPRISM_MODE": "off"}) is None
    )
    assert process_run.current_run() is None
    assert process_run.join_run("core", {}) is None


def test_an_absent_hook_is_told_to_the_run_that_comes_later(
    environment: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    process_run.tell_absent_hook("engine.core.Scheduler.schedule", "is not there")
    process_run.tell_absent_hook("engine.core.Scheduler.schedule", "is not there")
    assert len(caplog.records) == 1
    run = process_run.begin_run("mini", "1", environment=environment)
    assert run is not None
    ring = next(Path(environment[FOLDER_VARIABLE]).glob("*.ring"))
    assert b"Scheduler.schedule" in ring.read_bytes()
