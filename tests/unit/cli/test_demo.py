import io
import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from otel_llmprism.cli import demo_engine, demo_run
from otel_llmprism.cli.demo_engine import choose_engine
from otel_llmprism.cli.demo_report import DemoReport
from otel_llmprism.cli.demo_run import PortTakenError, choose_port
from otel_llmprism.config.errors import ConfigError


def run_demo(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "otel_llmprism", "demo", "--engine", "mini"]
    command += ["--data", str(folder), "--exit", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_demo_sees_every_step_the_engine_made_and_finds_nothing_when_nothing_is_wrong(tmp_path: Path) -> None:
    done = run_demo(tmp_path, "--fault", "none", "--seconds", "2", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["schema"] == "llmprism.report/1"
    assert report["injected"] is None
    assert report["findings"] == []
    assert report["loss"] == {"dropped": 0}
    assert report["steps"]["count"] > 10
    assert report["url"].startswith("http://127.0.0.1:")


def test_demo_refuses_a_length_without_sense_in_one_line(tmp_path: Path) -> None:
    done = run_demo(tmp_path, "--seconds", "0")
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["otel-llmprism: error: --seconds must be from 1 to 3600"]


def test_busy_default_port_gives_way_to_a_free_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        assert choose_port(port) not in {0, port}


def test_free_default_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as briefly:
        port = briefly.getsockname()[1]
    assert choose_port(port) == port


def test_port_taken_after_it_was_chosen_is_chosen_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = DemoReport("http://127.0.0.1:1", 1, {}, [], None)
    answers: list[DemoReport | None] = [None, report]

    def run_once(*_: object) -> DemoReport:
        answer = answers.pop(0)
        if answer is None:
            raise demo_run.PortTakenError("taken")
        return answer

    monkeypatch.setattr(demo_run, "run_once", run_once)
    settings = demo_run.DemoSettings(tmp_path, choose_engine("mini", None, tmp_path, 1.0), stays=False)
    assert demo_run.run_demo(settings, lambda _: None, io.StringIO()) is report


@pytest.mark.parametrize(
    ("text", "kind"), [("error: cannot listen on 127.0.0.1:1: taken", PortTakenError), ("", RuntimeError)]
)
def test_up_that_ends_at_once_is_told_with_its_last_line(
    tmp_path: Path, text: str, kind: type[Exception]
) -> None:
    log = tmp_path / "up.log"
    log.write_text(text)
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait(30)
        with pytest.raises(kind, match="did not start: ") as failure:
            demo_run.wait_until_ready(ended, log)
    assert type(failure.value) is kind


def test_report_of_a_demo_that_ends_says_how_to_see_the_page_again() -> None:
    report = DemoReport("http://127.0.0.1:1", 1, {}, [], None)
    assert "page      http://127.0.0.1:1\n" in report.to_text() + "\n"
    assert "(ends with the demo; again: otel-llmprism up --data x)" in report.to_text(
        "otel-llmprism up --data x"
    )


@pytest.mark.parametrize("words", [("nonsense",), ("link", "--engine", "vllm")])
def test_fault_that_cannot_be_injected_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    done = run_demo(tmp_path, "--fault", *words)
    assert done.returncode == 2
    assert "--fault" in done.stderr


def test_terminated_demo_leaves_no_process_behind(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "otel_llmprism",
        "demo",
        "--engine",
        "mini",
        "--fault",
        "none",
        "--seconds",
        "1",
        "--data",
        str(tmp_path),
        "--json",
    ]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as demo:
        assert demo.stdout is not None
        lines = iter(demo.stdout.readline, "}\n")
        url = json.loads("".join(lines) + "}")["url"]
        port = int(url.rpartition(":")[2])
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        demo.terminate()
        demo.wait(30)
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_vllm_is_taken_when_its_python_is_given(tmp_path: Path) -> None:
    engine = choose_engine("auto", Path("/opt/engine/bin/python"), tmp_path, 5.0)
    assert engine.title == "vLLM"
    assert "/opt/engine/bin/python" in engine.command


def test_without_vllm_the_mini_engine_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo_engine, "find_spec", lambda _name: None)
    assert choose_engine("auto", None, tmp_path, 5.0).title == "the mini engine"
    with pytest.raises(ConfigError, match="--engine-python"):
        choose_engine("vllm", None, tmp_path, 5.0)


CPU = {"accepted": [["cpu_contention", "host"]], "subjects": []}
FOUND = {"id": "1", "kind": "cpu_contention", "subject": {"type": "host", "id": "node"}, "summary": "burns"}
OTHER = {"id": "2", "kind": "hang", "subject": {"type": "engine", "id": "e"}, "summary": "hangs"}


@pytest.mark.parametrize(
    ("fault", "findings", "is_right"),
    [
        ("cpu", [FOUND], True),
        ("cpu", [], False),
        ("cpu", [FOUND, OTHER], False),
        ("none", [], True),
        ("none", [OTHER], False),
    ],
)
def test_demo_is_right_when_the_injected_fault_and_no_other_was_found(
    fault: str, findings: list[dict[str, object]], is_right: bool
) -> None:
    report = DemoReport("http://127.0.0.1:1", 9, {"faults": [CPU]}, [], None, [], findings, fault)
    assert report.is_right is is_right
    assert report.to_json()["injected"] == (None if fault == "none" else {"fault": "cpu", "faults": [CPU]})


def test_fault_on_the_right_kind_but_the_wrong_subject_is_not_found() -> None:
    fault = {"accepted": [["slow_worker", "rank"]], "subjects": ["1"]}
    victim = {"id": "1", "kind": "slow_worker", "subject": {"type": "rank", "id": "0"}}
    report = DemoReport("http://127.0.0.1:1", 9, {"faults": [fault]}, [], None, [], [victim], "slow_rank")
    assert not report.is_right


def test_faults_that_only_the_mini_engine_can_suffer_run_there(tmp_path: Path) -> None:
    engine = choose_engine("auto", Path("/opt/engine/bin/python"), tmp_path, 80.0, "link")
    assert engine.title == "the mini engine"
    assert engine.command[engine.command.index("--begin") + 1] == "60"
    assert engine.command[engine.command.index("--trigger") + 1] == str(engine.trigger)


def answer_with(blocks: list[dict[str, object]], state: str) -> object:
    def ask(url: str) -> dict[str, object]:
        if "/series" in url:
            assert "/engines/e%2Fdp0/series" in url
            return {"blocks": blocks}
        return {"engines": [{"id": "e/dp0", "state": state}]}

    return ask


@pytest.mark.parametrize(
    ("state", "upper_s", "is_known"),
    [("learning", 0.1, False), ("watching", None, False), ("watching", 0.1, True)],
)
def test_demo_strikes_once_the_engine_is_held_against_limits(
    monkeypatch: pytest.MonkeyPatch, state: str, upper_s: float | None, is_known: bool
) -> None:
    monkeypatch.setattr(demo_run, "ask", answer_with([{"upper_s": upper_s}], state))
    assert demo_run.is_watching("http://127.0.0.1:1") is is_known


def test_finding_is_told_once_and_the_engine_is_told_when_it_may_break(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(demo_run, "is_watching", lambda _url: True)
    monkeypatch.setattr(demo_run, "list_findings", lambda _url: [FOUND])
    told = io.StringIO()
    watch = demo_run.FindingWatch("http://127.0.0.1:1", told, tmp_path / "known")
    watch.look()
    watch.look()
    assert (tmp_path / "known").exists()
    assert told.getvalue().count("cpu_contention host node: burns") == 1
    assert "http://127.0.0.1:1/finding/1" in told.getvalue()
