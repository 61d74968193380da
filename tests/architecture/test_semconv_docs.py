# docs/semconv.md and the constants of semconv/ say the same names and the same units.
import importlib
import pkgutil
import re
from pathlib import Path

from otel_llmprism import semconv
from otel_llmprism.semconv import gpu, metric

PAGE = Path(__file__).parents[2] / "docs" / "semconv.md"
ROW = re.compile(r"^\| `([a-z0-9_.]+)` \| (.*) \|$", re.MULTILINE)
NAME = re.compile(r"(llmprism|gen_ai|service|host|process|hw|network|error)\.[a-z0-9_.]+")
SOURCE = Path(semconv.__file__).parents[1]
RESERVED = "(reserved: not emitted yet)"
# They name what they look for in spans, and emit none of it.
READERS = {SOURCE / "exporters/store/searchable.py", SOURCE / "service/query/llmprism_routes.py"}
EVENT_NAMES = {"llmprism.ledger", "llmprism.host"}


def list_constants() -> list[tuple[str, str]]:
    constants = []
    for module in pkgutil.iter_modules(semconv.__path__):
        for constant, value in vars(importlib.import_module(f"otel_llmprism.semconv.{module.name}")).items():
            if isinstance(value, str) and NAME.fullmatch(value) and value not in EVENT_NAMES:
                constants.append((constant, value))
    return constants


def list_code_names() -> set[str]:
    return {value for _, value in list_constants()}


def read_rows() -> dict[str, list[str]]:
    return {name: cells.split(" | ") for name, cells in ROW.findall(PAGE.read_text(encoding="utf-8"))}


def test_every_name_in_the_code_has_a_row_and_every_row_a_name() -> None:
    documented = set(read_rows())
    assert list_code_names() == documented


def test_exactly_the_names_that_no_code_uses_are_marked_as_reserved() -> None:
    emitting = [
        path for path in SOURCE.rglob("*.py") if path.parent.name != "semconv" and path not in READERS
    ]
    words = {word for path in emitting for word in re.findall(r"\w+", path.read_text(encoding="utf-8"))}
    unused = {value for constant, value in list_constants() if constant not in words}
    marked = {name for name, cells in read_rows().items() if cells[-1].endswith(RESERVED)}
    assert marked == unused


def test_every_row_says_its_stability() -> None:
    without = [name for name, cells in read_rows().items() if not {"stable", "experimental"} & set(cells)]
    assert without == []


def test_metric_rows_show_the_unit_that_is_sent() -> None:
    rows = read_rows()
    units = metric.UNITS | gpu.UNITS
    assert {name: rows[name][0] for name in units} == units


def test_histograms_have_rising_boundaries() -> None:
    for boundaries in metric.BUCKETS.values():
        assert list(boundaries) == sorted(set(boundaries))
