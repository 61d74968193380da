import errno
import json
import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from otel_llmprism.instrumentation import engine_run
from otel_llmprism.instrumentation.engine_run import EngineRun, join_engine_run, start_engine_run
from otel_llmprism.instrumentation.exporter_start import build_exporter_environment
from otel_llmprism.instrumentation.rank_records import RankPlace
from otel_llmprism.instrumentation.step_records import NO_STEP, EngineState
from otel_llmprism.instrumentation.watched_ring import (
    LOOK_EVERY_NS,
    LOOK_EVERY_PUTS,
    MAX_RESTARTS,
    WatchedRing,
)
from otel_llmprism.native.ring import RingWriter
from otel_llmprism.testing.clocks import FakeClock


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {"OTEL_LLMPRISM_RUNTIME_DIR": str(tmp_path / "runtime"), "OTEL_LLMPRISM_RING_SLOTS": "64"}


@pytest.fixture(autouse=True)
def no_exporter(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Start no process; return the folders for which one was asked."""
    asked: list[Path] = []

    def start(folder: Path, _environment: dict[str, str]) -> int:
        asked.append(folder)
        return 0

    monkeypatch.setattr(engine_run, "start_exporter", start)
    return asked


def record_one_step(run: EngineRun) -> int:
    return run.steps.record_scheduled({"a": 1}, (), EngineState(), 1, 2).step_id


def test_a_run_is_described_for_its_exporter_and_its_children(
    environment: dict[str, str], no_exporter: list[Path]
) -> None:
    run = start_engine_run("vllm", "0.33.0", model="m", ranks=8, environment=environment)
    assert run.is_on
    assert record_one_step(run) == 0
    (folder,) = no_exporter
    described = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    assert described["engine_name"] == "vllm"
    assert described["ranks"] == 8
    assert len(bytes.fromhex(described["run"])) == 16
    assert environment["OTEL_LLMPRISM_ENGINE_ID"] == described["engine_id"]

    child = join_engine_run("rank1", environment)
    assert child.description == run.description
    assert len(list(folder.glob("*.ring"))) == 2
    for path in (folder.parent, folder):
        assert path.stat().st_mode & 0o777 == 0o700
    for path in folder.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600
    child.close()
    run.close()


def test_each_start_mints_a_run_and_a_preset_engine_id_stays(environment: dict[str, str]) -> None:
    environment["OTEL_LLMPRISM_ENGINE_ID"] = "mine"
    runs = [start_engine_run("mini", "0", environment=environment) for _ in range(2)]
    described = [run.description for run in runs if run.description is not None]
    assert {description.engine_id for description in described} == {"mine"}
    assert len({description.run for description in described}) == 2
    for run in runs:
        run.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_LLMPRISM_DISABLED", "true"),
        ("OTEL_SDK_DISABLED", "True"),
        ("OTEL_LLMPRISM_MODE", "off"),
    ],
)
def test_switched_off_nothing_is_made_or_started(
    environment: dict[str, str], no_exporter: list[Path], tmp_path: Path, name: str, value: str
) -> None:
    environment[name] = value
    run = start_engine_run("mini", "0", environment=environment)
    assert not run.is_on
    assert record_one_step(run) == NO_STEP.step_id
    assert no_exporter == []
    assert not (tmp_path / "runtime").exists()


@pytest.mark.parametrize(
    ("hooks", "on"),
    [
        ("", ["step", "request", "rank"]),
        ("step, rank", ["step", "rank"]),
        ("-rank", ["step", "request"]),
        ("step,request,-step", ["request"]),
        ("-kernel", ["step", "request", "rank"]),
    ],
)
def test_single_hooks_are_switched_by_name(environment: dict[str, str], hooks: str, on: list[str]) -> None:
    environment["OTEL_LLMPRISM_HOOKS"] = hooks
    run = start_engine_run("mini", "0", environment=environment)
    every = (run.steps.hook, run.requests.hook, run.build_rank_recorder(RankPlace(rank=0)).hook)
    assert [hook.name for hook in every if not hook.is_off] == on
    run.close()


def test_without_a_place_for_rings_it_is_off_and_says_how_to_mend_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        run = start_engine_run(
            "mini", "0", environment={"OTEL_LLMPRISM_RUNTIME_DIR": str(tmp_path / "file" / "x")}
        )
    assert not run.is_on
    assert "set OTEL_LLMPRISM_RUNTIME_DIR" in caplog.text


def test_full_shared_memory_switches_off_and_leaves_nothing(
    environment: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with caplog.at_level(logging.WARNING):
        run = start_engine_run("mini", "0", environment=environment)
    assert not run.is_on
    assert "No space left" in caplog.text
    assert list((tmp_path / "runtime").iterdir()) == []


@pytest.mark.parametrize("error", [OSError(errno.EAGAIN, "no more processes"), AttributeError("posix_spawn")])
def test_without_an_exporter_the_engine_starts_alone_and_nothing_is_left(
    environment: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    def refuse(_folder: Path, _environment: dict[str, str]) -> int:
        raise error

    monkeypatch.setattr(engine_run, "start_exporter", refuse)
    before = dict(environment)
    with caplog.at_level(logging.WARNING):
        run = start_engine_run("mini", "0", environment=environment)
    assert not run.is_on
    assert record_one_step(run) == NO_STEP.step_id
    assert "llmprism is off in this process" in caplog.text
    assert list((tmp_path / "runtime").iterdir()) == []
    assert environment == before  # no child process joins what nobody reads


def test_a_folder_that_others_may_enter_is_refused(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "runtime").mkdir(mode=0o755)
    assert not start_engine_run("mini", "0", environment=environment).is_on


def test_a_forked_child_records_nothing_and_harms_nothing(environment: dict[str, str]) -> None:
    script = """
import os, sys
from otel_llmprism.instrumentation import engine_run
engine_run.start_exporter = lambda folder, environment: 0
run = engine_run.start_engine_run("mini", "0")
from otel_llmprism.instrumentation.rank_records import RankPlace
from otel_llmprism.instrumentation.step_records import EngineState
run.steps.record_scheduled({"a": 1}, (), EngineState(), 1, 2)
child = os.fork()
if not child:
    for n in range(200):
        run.steps.record_scheduled({"a": 1}, (), EngineState(), 1, 2)
    run.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
from otel_llmprism.native.ring import RingReader
(path,) = run.writer.path.parent.glob("*.ring")
reader = RingReader.open(path)
print(reader.pending, reader.dropped, reader.is_finished())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["2", "0", "False"]


def test_exporter_gets_neither_the_engines_injections_nor_its_auto_instrumentation() -> None:
    auto = "/site/opentelemetry/instrumentation/auto_instrumentation"
    passed = build_exporter_environment(
        {"LD_PRELOAD": "x.so", "NVTX_INJECTION64_PATH": "y.so", "PYTHONPATH": f"{auto}:/own", "OTEL_A": "b"}
    )
    assert passed.keys() == {"PYTHONPATH", "OTEL_A"}
    assert auto not in passed["PYTHONPATH"].split(":")
    assert "/own" in passed["PYTHONPATH"].split(":")


class Starter:
    """Starts real children that end at once, and counts them."""

    def __init__(self) -> None:
        self.pids: list[int] = []

    def __call__(self) -> int:
        self.pids.append(os.posix_spawn(sys.executable, [sys.executable, "-c", "input()"], {}))
        return self.pids[-1]

    def end_last(self) -> None:
        os.kill(self.pids[-1], signal.SIGKILL)
        os.waitid(os.P_PID, self.pids[-1], os.WEXITED | os.WNOWAIT)


def test_a_dead_exporter_is_started_again_a_few_times_and_a_live_one_is_left_alone(tmp_path: Path) -> None:
    starter, clock = Starter(), FakeClock()
    ring = WatchedRing(RingWriter.create(tmp_path / "a.ring", 8), starter, clock)
    while ring.put(bytes(128)):
        pass
    assert len(starter.pids) == 1  # it is alive: only slow
    for restart in range(MAX_RESTARTS + 2):
        starter.end_last() if restart <= MAX_RESTARTS else None
        clock.advance(ns=LOOK_EVERY_NS)
        ring.put(bytes(128))
        ring.put(bytes(128))
    assert len(starter.pids) == 1 + MAX_RESTARTS
    os.waitpid(starter.pids[-1], 0)


def test_a_dead_exporter_is_found_before_anything_is_dropped(tmp_path: Path) -> None:
    starter, clock = Starter(), FakeClock()
    ring = WatchedRing(RingWriter.create(tmp_path / "a.ring", 64), starter, clock)
    starter.end_last()
    assert all(ring.put(bytes(128)) for _ in range(LOOK_EVERY_PUTS))
    assert len(starter.pids) == 2
    starter.end_last()
    os.waitpid(starter.pids[-1], 0)
