import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_llmprism.instrumentation.frameworks.vllm import carrier as module
from otel_llmprism.instrumentation.frameworks.vllm.carrier import (
    CARRIER_KEY,
    Carrier,
    take_carrier,
    write_carrier,
)
from otel_llmprism.instrumentation.trace_context import SpanContext
from otel_llmprism.native.ring_records import MAX_ID_BYTES, bound_id


@given(
    arrival_ns=st.integers(0, 2**63),
    traceparent=st.text(max_size=60),
    external_id=st.text(max_size=300),
    is_local=st.booleans(),
    has_front_end=st.booleans(),
    context=st.none()
    | st.builds(
        SpanContext,
        st.binary(min_size=16, max_size=16),
        st.binary(min_size=8, max_size=8),
        st.binary(min_size=8, max_size=8),
        st.booleans(),
        st.booleans(),
    ),
)
def test_what_the_front_end_writes_the_core_reads(
    *,
    arrival_ns: int,
    traceparent: str,
    external_id: str,
    is_local: bool,
    has_front_end: bool,
    context: SpanContext | None,
) -> None:
    written = write_carrier(Carrier(arrival_ns, traceparent, external_id, is_local, has_front_end, context))
    written.encode()
    carrier, rest = take_carrier({CARRIER_KEY: written, "traceparent": "theirs"})
    bounded = bound_id(external_id).decode()
    expected = Carrier(arrival_ns, traceparent.replace("|", ""), bounded, is_local, has_front_end, context)
    assert carrier == expected
    assert rest == {"traceparent": "theirs"}


def test_a_long_id_of_any_content_stays_short_and_tells_itself_apart() -> None:
    one = write_carrier(Carrier(1, external_id="ü" * 10_000 + "a"))
    other = write_carrier(Carrier(1, external_id="ü" * 10_000 + "b"))
    assert len(one.encode()) < MAX_ID_BYTES + 128
    assert one != other
    write_carrier(Carrier(1, external_id="\udcff\ud800")).encode()


@pytest.mark.parametrize(
    "text", ["", "1|", "2|a|1|0||", "1|a|x|0|||", "1|a|1|x|||", "1|a|-1|0|||", "1|a|1|0|zz||"]
)
def test_what_is_no_carrier_of_ours_is_dropped(text: str) -> None:
    assert take_carrier({CARRIER_KEY: text}) == (None, None)


@pytest.mark.parametrize("ids", ["", "ab", "ab" * 33])
def test_ids_that_are_no_context_leave_the_rest_of_a_carrier(ids: str) -> None:
    mark = module.read_host_mark()
    carrier, _ = take_carrier({CARRIER_KEY: f"1|{mark}|7|6|{ids}|t|e"})
    assert carrier == Carrier(7, "t", "e", has_front_end=True)


@pytest.mark.parametrize("headers", [None, {}, {"traceparent": "x"}])
def test_headers_without_a_carrier_are_not_touched(headers: dict[str, str] | None) -> None:
    carrier, rest = take_carrier(headers)
    assert carrier is None
    assert rest is headers


def test_another_hosts_clock_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    written = write_carrier(Carrier(123, "t", "e", has_front_end=True))
    monkeypatch.setattr(module, "HOST_MARK", "elsewher")
    assert take_carrier({CARRIER_KEY: written})[0] == Carrier(0, "t", "e")
