# `control` on a serving engine: woken, asked, dived into and put to sleep again by any of its processes.
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_llmprism.native.control_socket import find_sockets

LONG = ("--requests", "100000", "--closed", "4", "--output", "40")
DEADLINE_S = 60.0


def control(case: Any, *words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "otel_llmprism", "control", *words]
    environment = {**os.environ, "OTEL_LLMPRISM_RUNTIME_DIR": str(case.folder / "runtime")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr + case.log
    return done


def ask(case: Any, *words: str) -> dict[int, dict[str, Any]]:
    answers = json.loads(control(case, *words, "--json").stdout)["processes"]
    assert all(answer["ok"] for answer in answers), answers
    return {answer["pid"]: answer for answer in answers}


def await_true(case: Any, check: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not check():
        assert time.monotonic() < deadline_s, case.log
        time.sleep(0.05)


def await_more_steps(case: Any) -> None:
    seen = len(case.list_spans("llmprism.step"))
    await_true(case, lambda: len(case.list_spans("llmprism.step")) > seen)


def start_and_await_sockets(
    start_engine: Any, tmp_path: Path, count: int, *words: str, **variables: str
) -> Any:
    case = start_engine(*LONG, *words, **variables)
    await_true(case, lambda: len(find_sockets(tmp_path / "runtime")) == count)
    return case


def list_deep(case: Any) -> list[Span]:
    return [
        span for span in case.list_spans("llmprism.step") if read_text(span, "llmprism.step.kept") == "deep"
    ]


def read_text(span: Span, name: str) -> str:
    return next((a.value.string_value for a in span.attributes if a.key == name), "")


def test_an_engine_asleep_is_woken_dived_into_and_put_to_sleep(start_engine: Any, tmp_path: Path) -> None:
    case = start_and_await_sockets(
        start_engine, tmp_path, 2, "--ranks", "2", OTEL_LLMPRISM_MODE="off", OTEL_LLMPRISM_STEPS="sample"
    )
    engine = case.process.pid
    (worker,) = set(find_sockets(tmp_path / "runtime")) - {engine}
    asleep = ask(case, str(worker), "status")
    assert {pid: answer["mode"] for pid, answer in asleep.items()} == {engine: "off", worker: "off"}
    assert not list((tmp_path / "runtime").glob("*/run.json")), "asleep there is no run"

    woken = ask(case, str(worker), "sentinel")
    assert {answer["mode"] for answer in woken.values()} == {"sentinel"}
    assert len({answer["run"] for answer in woken.values()}) == 1
    await_true(case, lambda: case.list_spans("llmprism.rank"))
    assert not list_deep(case)

    ask(case, str(engine), "deep-dive", "--steps", "7")
    await_true(case, lambda: ask(case, str(engine), "status")[engine]["deep_left"] == 0)
    await_true(case, lambda: len(list_deep(case)) == 7)

    off = ask(case, str(engine), "off")
    assert {answer["mode"] for answer in off.values()} == {"off"}
    calls = [hook["calls"] for hook in ask(case, str(engine), "status")[engine]["hooks"]]
    await_true(case, lambda: case.process.poll() is None and len(case.read_book()) > 0)
    assert [hook["calls"] for hook in ask(case, str(engine), "status")[engine]["hooks"]] == calls
    ask(case, str(engine), "sentinel")
    case.process.terminate()
    case.wait_for_end()
    deep = list_deep(case)
    ids = sorted(a.value.int_value for span in deep for a in span.attributes if a.key == "llmprism.step.id")
    assert ids == list(range(ids[0], ids[0] + 7)), "whole steps, one after the other, and no more"
    assert {read_text(span, "llmprism.mode") for span in deep} == {"deep"}
    assert not find_sockets(tmp_path / "runtime")


def test_an_engine_switched_on_and_off_again_and_again_loses_no_step_id(
    start_engine: Any, tmp_path: Path
) -> None:
    case = start_and_await_sockets(start_engine, tmp_path, 2, "--ranks", "2", OTEL_LLMPRISM_STEPS="all")
    engine = case.process.pid
    for _ in range(4):
        for command in ("off", "sentinel"):
            ask(case, str(engine), command)
        await_more_steps(case)
    case.process.terminate()
    case.wait_for_end()
    steps = case.list_spans("llmprism.step")
    ids = [a.value.int_value for span in steps for a in span.attributes if a.key == "llmprism.step.id"]
    assert sorted(ids) == list(range(len(ids)))
    lost = case.list_metrics().get("llmprism.lost")
    causes = [a.value.string_value for p in (lost.sum.data_points if lost else ()) for a in p.attributes]
    assert not {"malformed", "unmatched", "error"} & set(causes), causes


def test_status_is_readable_by_a_person(start_engine: Any, tmp_path: Path) -> None:
    case = start_and_await_sockets(start_engine, tmp_path, 1)
    shown = control(case, str(case.process.pid), "status").stdout
    assert shown.startswith(f"{case.process.pid}  sentinel, engine mini-")
    assert "step " in shown
    assert "request " in shown


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (("4194304999", "status"), 2, "there is no process"),
        (("1", "explode"), 2, "invalid choice"),
        (("1", "deep-dive", "--steps", "0"), 2, "--steps takes 1 to"),
    ],
)
def test_bad_use_says_what_and_how_to_mend(words: tuple[str, ...], status: int, says: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "otel_llmprism", "control", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_process_that_is_not_instrumented_is_told_how_to_be(tmp_path: Path) -> None:
    environment = {**os.environ, "OTEL_LLMPRISM_RUNTIME_DIR": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environment) as plain:
        done = subprocess.run(
            [sys.executable, "-m", "otel_llmprism", "control", str(plain.pid), "status"],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        plain.communicate(b"\n")
    assert done.returncode == 1
    assert "opentelemetry-instrument" in done.stderr
    assert f"attach {plain.pid}" in done.stderr
