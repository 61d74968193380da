# The ways in: what they register, what they switch on, and that they stay asleep where nobody asked.
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

import pytest

from otel_llmprism.instrumentation import entry_points as ways_in

PRINT_STATE = """
import os, sys, threading
from importlib.metadata import entry_points
for entry in entry_points(group="opentelemetry_pre_instrument", name="llmprism"):
    entry.load()()
for entry in entry_points(group="opentelemetry_instrumentor"):
    if entry.name.startswith("llmprism"):
        entry.load()().instrument(skip_dep_check=True)
for entry in entry_points(group="vllm.general_plugins", name="llmprism"):
    entry.load()()
mode = os.environ.get("OTEL_LLMPRISM_MODE")
print(threading.active_count(), mode, "OTEL_LLMPRISM_RUN_FOLDER" in os.environ)
print(*sorted(sys.modules))
"""


def run_script(script: str, **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    command = [sys.executable, "-W", "error::ResourceWarning", "-c", script]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**environment, **variables}, timeout=60, check=True
    )
    assert "Traceback" not in done.stderr
    return done.stdout


def test_every_entry_point_can_be_loaded() -> None:
    groups = (
        "opentelemetry_pre_instrument",
        "opentelemetry_instrumentor",
        "vllm.general_plugins",
        "sglang.srt.plugins",
    )
    for group in groups:
        ours = [entry for entry in entry_points(group=group) if entry.name.startswith("llmprism")]
        assert ours, group
        assert all(callable(entry.load()) for entry in ours)


def test_a_helper_process_gets_no_thread_no_run_and_nothing_heavy() -> None:
    state, modules = run_script(PRINT_STATE).splitlines()
    assert state == "1 sentinel False"
    assert {"torch", "vllm", "numpy", "grpc", "opentelemetry.sdk"}.isdisjoint(modules.split())
    assert not [
        name for name in modules.split() if name.startswith("otel_llmprism.instrumentation.frameworks.")
    ]


def test_a_plugin_loader_alone_leaves_the_hooks_asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "import os\nfrom otel_llmprism.instrumentation.entry_points import load_vllm_plugin\n"
        "load_vllm_plugin()\nprint(os.environ['OTEL_LLMPRISM_MODE'])"
    )
    assert run_script(script).split() == ["off"]


def test_what_the_user_asked_for_is_not_overridden() -> None:
    assert "1 off False" in run_script(PRINT_STATE, OTEL_LLMPRISM_MODE="off")


@pytest.mark.parametrize(
    "variables",
    [
        {"OTEL_LLMPRISM_DISABLED": "true"},
        {"OTEL_SDK_DISABLED": "TRUE"},
        {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "requests, llmprism"},
    ],
)
def test_disabled_means_that_nothing_is_imported(variables: dict[str, str]) -> None:
    state, modules = run_script(PRINT_STATE, **variables).splitlines()
    assert state == "1 None False"
    assert not [
        name for name in modules.split() if name.startswith("otel_llmprism.instrumentation.frameworks.")
    ]


def import_stand_in(tmp_path: Path, *names: str, **variables: str) -> list[str]:
    """Import empty packages of these names and return which of our framework modules came along."""
    for name in names:
        (tmp_path / f"{name}.py").write_text("")
    imports = "".join(f"import {name}\n" for name in names)
    script = PRINT_STATE.replace(
        "print(thread", f"sys.path.insert(0, {str(tmp_path)!r})\n{imports}print(thread"
    )
    modules = run_script(script, **variables).splitlines()[1].split()
    return [name.rpartition(".")[2] for name in modules if "instrumentation.frameworks." in name]


def test_a_frameworks_hooks_are_loaded_when_it_is_imported(tmp_path: Path) -> None:
    found = import_stand_in(tmp_path, "transformers")
    assert "transformers" in found
    assert "vllm" not in found


def test_one_framework_can_be_disabled_by_its_entrys_name(tmp_path: Path) -> None:
    disabled = {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "llmprism_transformers"}
    assert "transformers" not in import_stand_in(tmp_path, "transformers", "torch", **disabled)


def test_a_framework_that_cannot_be_hooked_leaves_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(ways_in.MODE_VARIABLE, "off")
    for name in ("vllm", "torch"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    installed: list[str] = []

    class Module:
        def __init__(self, name: str) -> None:
            self.name = name.rpartition(".")[2]

        def install(self) -> None:
            if self.name == "vllm":
                raise RuntimeError("broken")
            installed.append(self.name)

    monkeypatch.setattr(ways_in, "import_module", Module)
    ways_in.install_frameworks(("vllm", "torch"))
    assert installed == ["torch"]
    assert "off for vllm: broken" in caplog.text


def test_instrument_and_plugin_both_leave_one_layer(tmp_path: Path) -> None:
    (tmp_path / "late_engine.py").write_text("def step():\n    return 1\n")
    script = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from otel_llmprism.instrumentation.hooking import Target, install_hooks
wrap = lambda original: lambda: original() + 1
for _ in range(2):
    install_hooks("late", [(Target("late_engine", "step"), wrap)])
import late_engine
install_hooks("late", [(Target("late_engine", "step"), wrap)])
print(late_engine.step())
"""
    assert run_script(script).split() == ["2"]
