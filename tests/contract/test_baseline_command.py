# `otel-llmprism baseline` as people and scripts use it: files in, figures out, one-line errors.
import json
import re
from pathlib import Path

import numpy as np
import pytest

from otel_llmprism.baseline.expected import FitSettings
from otel_llmprism.cli import baseline_fit
from otel_llmprism.cli.main import main

HEADER = "start_ns,duration_ns,engine,kind,requests,prefill_tokens,decode_tokens,kv_tokens,instance,gap_ns"
ACTIONS = ("fit", "show", "check", "diff", "export", "import")


def write_records(path: Path, instance: str, seed: int, *, factor: float = 1.0, steps: int = 300) -> Path:
    rng = np.random.default_rng(seed)
    lines = [
        "start_ns,duration_ns,engine,kind,requests,prefill_tokens,decode_tokens,kv_tokens,instance,gap_ns"
    ]
    now = 1_767_225_600_000_000_000
    for decode in rng.integers(1, 33, steps).tolist():
        kv = decode * int(rng.integers(100, 900))
        cycle = int((2e6 + 2e4 * decode + 40 * kv) * factor * rng.lognormal(0, 0.02))
        lines.append(f"{now},{cycle},e,decode,{decode},0,{decode},{kv},{instance},7")
        now += cycle
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(autouse=True)
def quick_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fit a small structure: what a full fit is worth is tested where it is made."""
    quick = FitSettings(min_steps=50, resources=1, terms=2, starts=3, members=1, use_trees=False)
    monkeypatch.setattr(baseline_fit, "FitSettings", lambda: quick)


@pytest.fixture
def folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    first, second = (
        write_records(tmp_path / f"{name}.csv", name, seed) for name, seed in (("a", 1), ("b", 2))
    )
    assert run("fit", first, second, "--out", tmp_path / "models") == 0
    capsys.readouterr()
    return tmp_path / "models"


def run(*words: object) -> int:
    return main(["baseline", *map(str, words)])


def test_check_writes_the_figures_of_the_contract(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, c = (write_records(tmp_path / f"new-{name}.csv", name, seed) for name, seed in (("a", 3), ("c", 4)))
    assert run("check", a, c, "--baseline", folder, "--json", "-") == 0
    figures = json.loads(capsys.readouterr().out)
    assert {"mape", "within_10pct", "coverage", "groups"} <= figures.keys()
    assert [(group["instance"], group["kind"], group["n"]) for group in figures["groups"]] == [
        ("a", "decode", 300),
        ("c", "decode", 300),
    ]
    for entry in (figures, *figures["groups"]):
        assert 0 < entry["mape"] < 0.1
        assert 0.5 < entry["within_10pct"] <= 1
        assert entry["coverage"] == 1
    assert figures["mape"] == pytest.approx(np.mean([group["mape"] for group in figures["groups"]]))


def test_check_writes_json_to_a_file_and_the_table_to_people(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "figures.json"
    assert run("check", tmp_path / "a.csv", "--baseline", folder, "--json", out) == 0
    assert json.loads(out.read_text())["coverage"] == 1
    assert re.search(r"^a +decode +300 ", capsys.readouterr().out, re.MULTILINE)


def test_fit_says_what_it_took_and_who_answers_for_the_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("fit", write_records(tmp_path / "a.csv", "a", 1), "--out", tmp_path / "m") == 0
    out = capsys.readouterr().out
    assert "300 steps of 1 instances" in out
    assert "not taken as work: gap_ns" in out
    assert "never seen is answered by the model for any engine" in out


def test_show_names_kinds_features_and_instances(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", folder) == 0
    out = capsys.readouterr().out
    assert re.match(r"any engine: version [0-9a-f]+\n", out)
    assert "fitted on 600 steps of 2 instances from 2026-01-01T00:00:00Z" in out
    assert "decode: 600 steps, error on steps left out" in out
    assert "kv_tokens" in out


def test_diff_names_the_kind_that_drifted(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slower = write_records(tmp_path / "slower.csv", "a", 9, factor=1.2)
    assert run("fit", slower, "--out", tmp_path / "new") == 0
    capsys.readouterr()
    assert run("diff", folder, tmp_path / "new") == 0
    drifted = re.match(r"any engine: decode +\+(\d+\.\d)% .*drift$", capsys.readouterr().out)
    assert drifted is not None
    assert 10 < float(drifted[1]) < 30
    assert run("diff", folder, folder) == 0
    assert "drift" not in capsys.readouterr().out


def test_export_and_import_carry_every_model(folder: Path, tmp_path: Path) -> None:
    assert run("export", folder, tmp_path / "all.baseline") == 0
    assert run("import", tmp_path / "all.baseline", "--out", tmp_path / "there") == 0
    assert [path.read_bytes() for path in (tmp_path / "there").iterdir()] == [
        path.read_bytes() for path in folder.iterdir()
    ]
    assert run("check", tmp_path / "a.csv", "--baseline", tmp_path / "all.baseline") == 0


def test_bad_rows_and_files_are_named_and_the_rest_is_used(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (tmp_path / "a.csv").open("a") as file:
        file.write("1,soon,e,decode,1,0,1,1,a,7\n")
    words = ("check", tmp_path / "a.csv", tmp_path / "absent.csv", "--baseline", folder, "--json", "-")
    assert run(*words) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["groups"][0]["n"] == 300
    assert "a.csv: line 302: duration_ns cannot be 'soon'" in err
    assert "absent.csv: No such file or directory" in err


def test_damaged_model_is_one_line_and_the_others_answer(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "damaged.baseline").write_bytes(b"\x80\x04cposix\nsystem\n")
    assert run("check", tmp_path / "a.csv", "--baseline", folder) == 0
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    "words",
    [
        ("show", "absent"),
        ("check", "absent.csv", "--baseline", "models"),
        ("check", "a.csv", "--baseline", "absent"),
        ("fit", "absent.csv", "--out", "out"),
        ("diff", "absent", "models"),
        ("import", "a.csv", "--out", "out"),
    ],
)
def test_what_cannot_be_done_exits_1_and_says_so(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*words) == 1
    err = capsys.readouterr().err
    assert re.search("no model in|no model was fitted|hold no steps to check", err)
    assert "Traceback" not in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("words", [(), ("fit",), ("fit", "a.csv"), ("check", "a.csv"), ("melt",)])
def test_bad_use_exits_2_in_one_line(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        run(*words)
    assert left.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("action", ACTIONS)
def test_every_action_shows_an_example(action: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        run(action, "--help")
    assert left.value.code == 0
    assert f"otel-llmprism baseline {action} " in capsys.readouterr().out.split("example:")[1]
