# The command line itself: commands are found, errors are one line, tracebacks only on demand.
import argparse
import importlib

import pytest

from otel_llmprism.cli import main as command_line
from otel_llmprism.config.errors import ConfigError


@pytest.fixture(autouse=True)
def _quiet_logging(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_line, "configure_logging", lambda **_: None)


class FailingCommand:
    HELP, EXAMPLE = "fails", "otel-llmprism doctor"

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--loudly", action="store_true")

    def run(self, args: argparse.Namespace) -> int:
        raise self.error


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    monkeypatch.setattr(command_line, "load_command", lambda _: FailingCommand(error))


@pytest.mark.parametrize("name", sorted(command_line.COMMANDS))
def test_every_command_has_what_the_command_line_asks_for(name: str) -> None:
    module = command_line.load_command(name)
    assert module.HELP
    assert module.EXAMPLE.startswith("otel-llmprism " + name)
    assert callable(module.run)
    assert callable(module.add_arguments)


@pytest.mark.parametrize("name", sorted(command_line.COMMANDS))
def test_every_help_shows_its_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line.main([name, "--help"])
    assert ended.value.code == 0
    assert "example:\n  otel-llmprism " + name in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (ConfigError("mend it"), 2, "otel-llmprism: error: mend it\n"),
        (
            OSError(28, "No space left"),
            1,
            "otel-llmprism: error: [Errno 28] No space left (-v shows where)\n",
        ),
        (RuntimeError("two\nlines"), 1, "otel-llmprism: error: two lines (-v shows where)\n"),
        (KeyError("x"), 1, "otel-llmprism: error: KeyError: 'x' (-v shows where)\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_are_one_line_with_their_status(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    status: int,
    line: str,
) -> None:
    fail_with(monkeypatch, error)
    assert command_line.main(["doctor"]) == status
    assert capsys.readouterr().err == line


@pytest.mark.parametrize("words", [["-v", "doctor"], ["doctor", "-v"]])
def test_traceback_comes_with_verbose_in_either_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    fail_with(monkeypatch, RuntimeError("why"))
    assert command_line.main(words) == 1
    assert "Traceback" in capsys.readouterr().err


def test_package_of_an_extra_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def import_nothing(name: str) -> None:
        raise ModuleNotFoundError("No module named 'yaml'", name="yaml.nodes")

    monkeypatch.setattr(importlib, "import_module", import_nothing)
    assert command_line.main(["processor", "--config", "x"]) == 2
    assert "pip install 'otel-llmprism[processor]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "module", "extra"),
    [("up", "yaml", "up"), ("up", "jinja2", "up"), ("processor", "uvicorn.config", "processor")],
)
def test_extra_that_a_command_lacks_only_when_it_runs_is_named_in_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    module: str,
    extra: str,
) -> None:
    fail_with(monkeypatch, ModuleNotFoundError(f"No module named {module!r}", name=module))
    assert command_line.main([command]) == 2
    package = module.partition(".")[0]
    mend = f"pip install 'otel-llmprism[{extra}]'"
    assert capsys.readouterr().err == f"otel-llmprism: error: {command} needs the package {package}: {mend}\n"


def test_module_that_no_extra_brings_stays_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(monkeypatch, ModuleNotFoundError("No module named 'gone'", name="gone"))
    assert command_line.main(["doctor"]) == 1
    assert "No module named 'gone'" in capsys.readouterr().err


def test_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("otel-llmprism ")
