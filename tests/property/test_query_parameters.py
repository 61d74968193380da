# Whatever a query string says: a bounded question, or a refusal that names the parameter.
import contextlib
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from starlette.datastructures import QueryParams

from otel_llmprism.exporters.store.span_rows import MAX_INT64
from otel_llmprism.service.query import parameters
from otel_llmprism.service.query.durations import parse_duration_ns
from otel_llmprism.service.query.errors import BadParameterError

NAMES = (
    *("service", "operation", "spanKind", "tag", "tags", "start", "end"),
    *("lookback", "minDuration", "maxDuration", "limit"),
)
LIKELY = st.sampled_from(
    [
        "",
        "0",
        "1",
        "-1",
        "20",
        "1500",
        "99999999999999999999999",
        "1.5s",
        "1h30m",
        "{}",
        '{"a":"b"}',
        "a:b",
        "²",
        "server",
    ]
)
VALUES = st.one_of(
    LIKELY, st.text(max_size=40), st.from_regex(r"[0-9.]{1,30}(ns|us|ms|s|m|h|d)", fullmatch=True)
)


@given(st.lists(st.tuples(st.sampled_from(NAMES), VALUES), max_size=20))
@example([("start", "9" * 20), ("lookback", "9" * 18 + "w")])
@example([("tags", "[" * 5000)])
@example([("tags", '{"a":"\\ud800"}')])
def test_any_query_string_is_bounded_or_refused(pairs: list[tuple[str, str]]) -> None:
    try:
        query = parameters.read_trace_query(QueryParams(pairs), 10**18, default_limit=20, with_content=False)
    except BadParameterError:  # any other error fails the test
        return
    assert 1 <= query.limit <= parameters.MAX_TRACES
    assert len(query.tags) <= parameters.MAX_TAGS
    for number in (query.start_ns, query.end_ns, query.min_duration_ns, query.max_duration_ns):
        assert 0 <= number <= MAX_INT64
    assert query.min_duration_ns <= query.max_duration_ns


@given(st.text(max_size=80))
def test_a_duration_is_a_number_or_a_refusal(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert parse_duration_ns(text) >= 0


@given(st.integers(0, 10**15))
def test_nanoseconds_are_read_exactly(number: int) -> None:
    assert parse_duration_ns(f"{number}ns") == number
    assert parse_duration_ns(f"{number}us") == number * 1000


@given(st.binary(min_size=16, max_size=16))
def test_trace_ids_are_read_with_and_without_leading_zeros(raw: bytes) -> None:
    text = raw.hex()
    expected: Any = [raw]
    assert parameters.read_trace_ids([text]) == expected
    assert parameters.read_trace_ids([text.lstrip("0") or "0"]) == expected
