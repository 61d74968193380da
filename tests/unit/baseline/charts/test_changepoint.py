import json
import os
from pathlib import Path

import numpy as np
import pytest

from otel_llmprism.baseline.charts.changepoint import find_changepoints, locate_shift

ROOT = Path(__file__).parents[4]
SHARED = Path(os.environ.get("LLMPRISM_SHARED_DATA", ROOT.parent / "shared" / "data"))
MARGIN = 5  # rows that a changepoint may be off


def test_steps_of_the_level_are_found_where_they_are() -> None:
    rng = np.random.default_rng(1)
    levels = np.repeat([0.0, 2.0, -1.0, -1.0, 1.5], 60)
    found = find_changepoints(levels + 0.4 * rng.standard_normal(len(levels)))
    assert len(found) == 3
    assert all(abs(place - true) <= 2 for place, true in zip(found, (60, 120, 240), strict=True))


def test_noise_alone_has_no_changepoint() -> None:
    rng = np.random.default_rng(2)
    false = [len(find_changepoints(rng.standard_normal(300))) for _ in range(40)]
    assert sum(false) <= 1


def test_single_spikes_are_no_changepoints() -> None:
    rng = np.random.default_rng(3)
    series = 0.1 * rng.standard_normal(200)
    series[[50, 120]] += 5.0
    assert find_changepoints(series) == []


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_short_series_have_none(rows: int) -> None:
    assert find_changepoints(np.arange(rows, dtype=np.float64)) == []


def test_constant_series_has_none() -> None:
    assert find_changepoints(np.full(100, 3.0)) == []


def test_rise_is_located_and_a_fall_is_not_taken_for_one() -> None:
    assert locate_shift(np.array([0.1, -0.1, 0.0, 0.1, 0.9, 1.1, 1.0])) == 4
    assert locate_shift(np.array([1.0, 1.0, 0.0, 0.0])) in {0, 1}
    assert locate_shift(np.array([1.0])) == 0


@pytest.mark.parametrize(
    "name", ["well_log", "nile", "quality_control_1", "quality_control_2", "quality_control_3"]
)
def test_changes_that_people_annotated_are_found(name: str) -> None:
    folder = SHARED / "changepoint"
    if not (folder / f"{name}.json").exists():
        pytest.skip(f"{folder} is not here")
    data = json.loads((folder / f"{name}.json").read_text())
    marks = json.loads((folder / "annotations.json").read_text())[name]
    series = np.array(data["series"][0]["raw"], dtype=np.float64)
    assert score_f1(find_changepoints(series), list(marks.values())) >= 0.7


def score_f1(found: list[int], people: list[list[int]]) -> float:
    """Return F1 as the data set's authors define it: row 0 is found by all, any annotator's mark is right."""
    everybody = {0}.union(*map(set, people))
    places = {0, *found}
    precision = sum(any(abs(place - true) <= MARGIN for true in everybody) for place in places) / len(places)
    recall = float(
        np.mean(
            [
                np.mean([any(abs(place - true) <= MARGIN for place in places) for true in {0, *marks}])
                for marks in people
            ]
        )
    )
    return 2 * precision * recall / (precision + recall)
