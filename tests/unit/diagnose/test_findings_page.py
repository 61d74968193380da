# docs/findings.md and the code name the same kinds and subjects.
import re
from pathlib import Path

from otel_llmprism.diagnose import FindingKind, SubjectType
from otel_llmprism.diagnose.incidents.summaries import _SENTENCES

PAGE = (Path(__file__).parents[3] / "docs" / "findings.md").read_text(encoding="utf-8")


def read_first_cells(heading: str) -> list[tuple[str, list[str]]]:
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `([a-z_]+)` \| (.*) \|$", section, re.MULTILINE)
    return [(name, rest.split(" | ")) for name, rest in rows]


def test_every_kind_that_can_open_is_explained_once() -> None:
    assert sorted(name for name, _ in read_first_cells("Kinds")) == sorted(FindingKind)


def test_every_kind_says_meaning_measure_and_remedy() -> None:
    for name, cells in read_first_cells("Kinds"):
        assert len(cells) == 3, name
        assert all(len(cell.strip()) > 10 for cell in cells), name


def test_every_subject_type_has_its_form() -> None:
    assert sorted(name for name, _ in read_first_cells("Subjects")) == sorted(SubjectType)


def test_every_kind_has_a_sentence_of_its_own() -> None:
    assert set(_SENTENCES) == set(FindingKind)
    assert len(set(_SENTENCES.values())) == len(FindingKind)
