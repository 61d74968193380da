# Durations and sizes, both ways.
import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_llmprism.config.quantities import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2s", 2.0), ("250ms", 0.25), ("1m30s", 90.0), ("1h 5m", 3900.0), ("0", 0.0), (0, 0.0), ("1.5s", 1.5)],
)
def test_durations_are_read_with_their_units(text: object, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["2", 2, 2.5, "", "s", "2 parsecs", "-1s", True, None, "1s oops"])
def test_durations_without_a_unit_are_refused(text: object) -> None:
    with pytest.raises(ValueError, match="with its unit"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"), [("64MiB", 64 << 20), ("10kB", 10_000), ("5", 5), (5, 5), ("1.5KiB", 1536), (0, 0)]
)
def test_sizes_are_read(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["64Mb", "", "MiB", -1, 1.5, True, None, "1 2"])
def test_unclear_sizes_are_refused(text: object) -> None:
    with pytest.raises(ValueError, match="write a size"):
        parse_size(text)


@given(st.integers(0, 10**9).map(lambda milliseconds: milliseconds / 1000))
def test_durations_survive_the_way_there_and_back(seconds: float) -> None:
    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, abs=1e-9)


@given(st.integers(0, 1 << 50))
def test_sizes_survive_the_way_there_and_back(size: int) -> None:
    assert parse_size(format_size(size)) == size
