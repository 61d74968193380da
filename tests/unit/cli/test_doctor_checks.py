# What doctor says of frameworks, folders, GPUs and running processes that a test describes.
import argparse
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_llmprism.cli import doctor
from otel_llmprism.cli.doctor_checks import frameworks, machine, process
from otel_llmprism.cli.engine_control import EngineProcess
from otel_llmprism.instrumentation.hooking import Target
from otel_llmprism.instrumentation.source_tree import SourceTree
from otel_llmprism.testing.fake_nvml import FakeGpu, FakeNvml

AUTO = "/venv/opentelemetry/instrumentation/auto_instrumentation"


def test_json_says_the_same_as_the_lines(capsys: pytest.CaptureFixture[str]) -> None:
    doctor.run(argparse.Namespace(endpoint="", pid=None, json=False))
    lines = capsys.readouterr().out.splitlines()
    doctor.run(argparse.Namespace(endpoint="", pid=None, json=True))
    told = json.loads(capsys.readouterr().out)
    assert told["schema"] == "llmprism.doctor/1"
    assert len(told["checks"]) == len(lines)
    assert set(told["checks"][0]) == {"level", "what", "says", "mend"}


@pytest.mark.parametrize(
    ("version", "level"), [("0.63b0", "ok"), ("0.62b1", "fail"), ("1.0", "ok"), ("", "note"), ("ours", "ok")]
)
def test_instrument_that_is_too_old_fails(monkeypatch: pytest.MonkeyPatch, version: str, level: str) -> None:
    monkeypatch.setattr(frameworks, "read_version", lambda _name: version)
    monkeypatch.setattr(frameworks.shutil, "which", lambda _name: "/bin/it")  # type: ignore[attr-defined]
    (report,) = frameworks.check_instrument()
    assert report.level == level
    assert (f">={frameworks.NEEDED_INSTRUMENT}" in report.mend) is (level != "ok")


def test_package_that_is_only_on_the_path_has_no_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [report.level for report in frameworks.check_entry_points()] == ["ok"]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_group: ())
    (report,) = frameworks.check_entry_points()
    assert report.level == "fail"
    assert "vllm.general_plugins" in report.says


def test_places_of_an_installed_framework_are_counted_and_the_missing_named(tmp_path: Path) -> None:
    package = tmp_path / "engine"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('must not be imported')\n")
    (package / "core.py").write_text(
        "class Core:\n    def step(self, batch): ...\n    def plan(self, other): ...\n"
    )
    step, plan, old = (
        Target("engine.core", "Core.step", ("batch",)),
        Target("engine.core", "Core.plan", ("batch",)),
        Target("engine.old", "Core.step", is_optional=True),
    )
    tree = SourceTree(tmp_path)
    good = frameworks.judge_targets("engine", "1.2", tree, [step, old])
    assert (good.level, good.says) == (
        "ok",
        "1.2: 1 of 2 hooks find their place, the others belong to other versions",
    )
    bad = frameworks.judge_targets("engine", "1.2", tree, [step, plan, old])
    assert bad.level == "note"
    assert "1 of 3" in bad.says
    assert "engine.core.Core.plan takes (other), not (batch, ...)" in bad.says


def test_installed_package_is_found_without_being_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "someengine").mkdir()
    (tmp_path / "someengine/__init__.py").write_text("raise RuntimeError\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert frameworks.find_sources("someengine") == tmp_path
    assert "someengine" not in sys.modules
    assert frameworks.find_sources("no_such_engine") is None


def test_every_hook_has_a_package_that_doctor_looks_for() -> None:
    assert {"vllm", "torch"} <= {target.module.partition(".")[0] for target in frameworks.list_targets()}


def test_rings_on_a_disk_are_said_to_make_steps_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_LLMPRISM_RUNTIME_DIR", str(tmp_path / "rings"))
    monkeypatch.setattr(machine, "find_filesystem", lambda _folder: "ext4")
    (report,) = machine.check_shared_memory()
    assert "ext4" in report.says
    monkeypatch.setattr(machine, "find_filesystem", lambda _folder: "tmpfs")
    (report,) = machine.check_shared_memory()
    assert report.level == "ok"
    assert str(tmp_path) in report.says


def test_file_system_is_that_of_the_deepest_mount() -> None:
    assert machine.find_filesystem(Path("/proc/self")) == "proc"


def test_folder_that_others_may_enter_takes_no_control_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_LLMPRISM_RUNTIME_DIR", str(tmp_path))
    tmp_path.chmod(0o777)
    assert [report.level for report in machine.check_control_folder()] == ["note"]
    tmp_path.chmod(0o700)
    assert [report.level for report in machine.check_control_folder()] == ["ok"]


@pytest.mark.parametrize(
    ("is_installed", "nvml", "level", "says"),
    [
        (False, None, "note", "not installed"),
        (True, None, "note", "cannot be started"),
        (True, FakeNvml(FakeGpu("GPU-1"), FakeGpu("GPU-2")), "ok", "2 GPUs to watch (NVIDIA H200)"),
    ],
)
def test_nvml_is_named_with_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch, is_installed: bool, nvml: Any, level: str, says: str
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: object() if is_installed else None)
    monkeypatch.setattr(machine, "load_nvml", lambda: nvml)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    (report,) = machine.check_nvml()
    assert report.level == level
    assert says in report.says


@pytest.fixture
def isolated_child(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[str]]:
    """An engine's parent that auto-instrumentation reached, with a child that it does not reach."""
    script = (
        "import subprocess, sys;"
        "child = subprocess.Popen([sys.executable, '-c', 'input()'], env={}, stdin=subprocess.PIPE);"
        "print(child.pid, flush=True); input(); child.kill(); child.wait()"
    )
    environment = {"PYTHONPATH": AUTO, "NCCL_PROFILER_PLUGIN": "inspector", "PATH": os.environ["PATH"]}
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        yield parent
        parent.communicate("\n")


def test_child_out_of_reach_and_foreign_plugin_of_a_running_engine_are_named(
    isolated_child: subprocess.Popen[str],
) -> None:
    assert isolated_child.stdout is not None
    child = int(isolated_child.stdout.readline())
    reports = {report.what: report for report in process.check_engine(isolated_child.pid)}
    assert "PYTHONPATH" in reports[f"process {child}"].says
    assert f"{isolated_child.pid} NCCL profiler plugin" in reports
    assert "not instrumented" in reports[f"process {isolated_child.pid}"].says


def test_pid_that_is_not_there_fails() -> None:
    (report,) = process.check_engine(2**22 + 7)
    assert report.level == "fail"


def test_instrumented_process_tells_what_is_off_lost_and_beside_it() -> None:
    status = {
        "mode": "sentinel",
        "dropped": 3,
        "hooks": [{"name": "step", "off": None}, {"name": "rank", "off": "budget"}],
        "absent_hooks": ["vllm.x.y"],
        "neighbours": [{"name": "torch.profiler", "evidence": "1 running", "rule": "we wait"}],
    }
    says = [report.says for report in process.judge_member(EngineProcess(7, Path("x"), status))]
    assert says == [
        "mode sentinel, 3 records dropped",
        "the hook rank switched itself off: budget",
        "no place for vllm.x.y",
        "1 running: we wait",
    ]
    assert [one.level for one in process.judge_member(EngineProcess(7, Path("x"), {"mode": "off"}))] == ["ok"]
