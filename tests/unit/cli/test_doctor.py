import argparse
import importlib.util
import socket
from pathlib import Path

import pytest

from otel_llmprism.cli import doctor
from otel_llmprism.cli.doctor_checks import machine


def run_doctor(endpoint: str = "") -> int:
    return doctor.run(argparse.Namespace(endpoint=endpoint, pid=None, json=False))


def test_every_line_has_level_subject_and_finding(capsys: pytest.CaptureFixture[str]) -> None:
    run_doctor()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 8
    assert {line.split()[0] for line in lines} <= {"ok", "note", "fail"}
    assert any("native library" in line for line in lines)


def test_endpoint_that_answers_is_ok(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert run_doctor(f"http://127.0.0.1:{port}") == 0
    assert f"127.0.0.1:{port} accepts connections" in capsys.readouterr().out


def test_endpoint_that_does_not_answer_fails_and_says_the_mend(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert run_doctor(f"127.0.0.1:{port}") == 1
    assert "start the Collector there" in capsys.readouterr().out


def test_malformed_endpoint_fails_with_the_form_to_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_doctor("http://localhost:notaport") == 1
    assert "write it as http://host:4318" in capsys.readouterr().out


def test_switched_off_native_library_is_told_from_an_absent_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "load_library", lambda: None)
    monkeypatch.setenv("OTEL_LLMPRISM_NATIVE", "off")
    assert [report.mend for report in machine.check_native()] == ["unset OTEL_LLMPRISM_NATIVE"]
    monkeypatch.delenv("OTEL_LLMPRISM_NATIVE")
    assert "reinstall" in next(iter(machine.check_native())).mend


def test_unwritable_runtime_folder_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(gone))
    [report] = machine.check_runtime_folder()
    assert str(gone) in report.says
    assert report.level == "note"


def test_extras_that_are_missing_are_named_each_with_its_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "plotly" else name)
    processor, up = machine.check_extras()
    assert processor.level == "ok"
    assert (up.says, up.mend) == ("missing plotly", "pip install 'otel-llmprism[up]'")


def test_an_absent_hooks_extension_says_what_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "load_extension", lambda: None)
    monkeypatch.delenv("OTEL_LLMPRISM_NATIVE", raising=False)
    [report] = machine.check_extension()
    assert "hooks work in Python" in report.says
