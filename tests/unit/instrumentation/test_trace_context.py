import pytest
from opentelemetry import trace

from otel_llmprism.instrumentation.sampling import build_sampler
from otel_llmprism.instrumentation.trace_context import Caller, draw_id, parse_traceparent, read_current_span

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
GOOD = f"00-{TRACE}-{SPAN}-01"


def test_traceparent_gives_trace_parent_and_sampled_flag() -> None:
    assert parse_traceparent(GOOD) == Caller(bytes.fromhex(TRACE), bytes.fromhex(SPAN), is_sampled=True)
    unsampled = parse_traceparent(f"00-{TRACE}-{SPAN}-00")
    assert unsampled is not None
    assert not unsampled.is_sampled


def test_later_versions_may_have_more_fields_and_version_00_may_not() -> None:
    assert parse_traceparent(f"cc-{TRACE}-{SPAN}-01-what-comes") is not None
    assert parse_traceparent(f"{GOOD}-more") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        f"00-{TRACE}-{SPAN}",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-zz",
        "x" * 100_000,
    ],
)
def test_malformed_traceparent_is_no_context(text: str) -> None:
    assert parse_traceparent(text) is None


def test_drawn_ids_differ_and_are_not_zero() -> None:
    ids = {draw_id(8) for _ in range(100)}
    assert len(ids) == 100
    assert all(any(value) for value in ids)


def test_caller_decides_by_default_whether_a_request_is_sampled() -> None:
    is_sampled = build_sampler({})
    assert is_sampled(None, draw_id(16))
    for decision in (True, False):
        assert is_sampled(Caller(b"t" * 16, b"s" * 8, decision), b"t" * 16) is decision


def test_named_samplers_do_what_the_sdk_does() -> None:
    caller = Caller(b"t" * 16, b"s" * 8, is_sampled=False)
    assert build_sampler({"OTEL_TRACES_SAMPLER": "always_on"})(caller, b"t" * 16)
    assert not build_sampler({"OTEL_TRACES_SAMPLER": "parentbased_always_off"})(None, b"t" * 16)
    ratio = build_sampler({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"})
    share = sum(ratio(None, draw_id(16)) for _ in range(4000)) / 4000
    assert 0.2 < share < 0.3


def test_ratio_decides_as_the_sdk_sampler_for_the_same_trace_ids() -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace.sampling").TraceIdRatioBased(0.3)
    ours = build_sampler({"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.3"})
    for _ in range(500):
        trace_id = draw_id(16)
        theirs = sdk.should_sample(None, int.from_bytes(trace_id, "big"), "name").decision.is_sampled()
        assert ours(None, trace_id) is theirs


def test_unknown_sampler_or_argument_falls_back_to_the_default() -> None:
    assert build_sampler({"OTEL_TRACES_SAMPLER": "jaeger_remote"})(None, draw_id(16))
    broken = {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "many"}
    assert build_sampler(broken)(None, b"\xff" * 16)


@pytest.mark.parametrize("is_remote", [False, True])
def test_a_span_that_another_process_began_is_no_local_one(is_remote: bool) -> None:
    context = trace.SpanContext(1, 2, is_remote=is_remote, trace_flags=trace.TraceFlags(1))
    with trace.use_span(trace.NonRecordingSpan(context)):
        assert read_current_span() == (f"00-{1:032x}-{2:016x}-01", not is_remote)
    assert read_current_span() == ("", False)
