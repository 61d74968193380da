import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_llmprism.model.signals import Signal
from otel_llmprism.model.values import Scalar
from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.pipeline.receipt import Receipt
from otel_llmprism.pipeline.stage import END_OF_TIME_NS
from otel_llmprism.reconstruct.stamp import StampConfig, StampStage

STAMP: dict[str, Scalar] = {"llmprism.a": 1, "llmprism.b": "text", "llmprism.c": True}


def build_batch(*names: str, signal: Signal = Signal.TRACES) -> Batch:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for name in names:
        scope.spans.add(trace_id=b"t" * 16, span_id=b"s" * 8, name=name)
    return Batch(signal, request.SerializeToString(), Receipt(lambda: None), arrived_ns=5)


def list_stamped(batch: Batch) -> list[str]:
    spans = ExportTraceServiceRequest.FromString(batch.payload).resource_spans[0].scope_spans[0].spans
    return [span.name for span in spans if "llmprism.a" in {pair.key for pair in span.attributes}]


def stamp(config: StampConfig, batch: Batch) -> Batch:
    (out,) = StampStage(config).consume(batch)
    return out


@pytest.mark.parametrize(
    ("patterns", "stamped"),
    [
        (("GET /a",), ["GET /a"]),
        (("GET*",), ["GET /a", "GET /bcd/efgh/ijkl"]),
        (("GET /bcd/efgh/ijkl", "chat"), ["GET /bcd/efgh/ijkl", "chat"]),
        (("*",), ["GET /a", "GET /bcd/efgh/ijkl", "chat", "h\u00e9"]),
        (("h\u00e9", "nothing"), ["h\u00e9"]),
    ],
)
def test_spans_are_stamped_by_exact_name_or_prefix(patterns: tuple[str, ...], stamped: list[str]) -> None:
    batch = build_batch("GET /a", "GET /bcd/efgh/ijkl", "chat", "h\u00e9")
    assert list_stamped(stamp(StampConfig(patterns, attributes=STAMP), batch)) == stamped


def test_a_stamped_batch_keeps_receipt_and_arrival_and_carries_every_attribute() -> None:
    batch = build_batch("chat")
    out = stamp(StampConfig(("chat",), attributes=STAMP), batch)
    assert (out.receipt, out.arrived_ns, out.signal) == (batch.receipt, 5, Signal.TRACES)
    (span,) = ExportTraceServiceRequest.FromString(out.payload).resource_spans[0].scope_spans[0].spans
    values = {pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "") for pair in span.attributes}
    assert values == STAMP


@pytest.mark.parametrize(
    ("where", "equals", "count"),
    [
        ("n", 200, 2),
        ("n", 201, 0),
        ("n", "200", 0),
        ("n", 200.0, 0),
        ("x", 1.5, 2),
        ("ok", True, 2),
        ("ok", 1, 0),
        ("n", None, 2),
        ("absent", None, 0),
    ],
)
def test_a_condition_on_an_attribute_compares_value_and_type(
    where: str, equals: Scalar | None, count: int
) -> None:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for _ in range(2):
        span = scope.spans.add(name="a")
        span.attributes.add(key="n").value.int_value = 200
        span.attributes.add(key="x").value.double_value = 1.5
        span.attributes.add(key="ok").value.bool_value = True
    scope.spans.add(name="without")
    batch = Batch(Signal.TRACES, request.SerializeToString(), Receipt(lambda: None), 0)
    out = stamp(StampConfig(where_attribute=where, equals=equals, attributes=STAMP), batch)
    assert list_stamped(out) == ["a"] * count


@pytest.mark.parametrize(
    "config",
    [
        StampConfig(("nothing",), attributes=STAMP),
        StampConfig(("chat",), attributes={}),
        StampConfig((), attributes=STAMP),
        StampConfig(("a name that is longer than the whole request" * 9,), attributes=STAMP),
    ],
)
def test_what_does_not_match_passes_as_the_same_object(config: StampConfig) -> None:
    batch = build_batch("chat")
    assert stamp(config, batch) is batch


def test_other_signals_damaged_and_empty_requests_pass_untouched() -> None:
    config = StampConfig(("*",), attributes=STAMP)
    logs = build_batch("chat", signal=Signal.LOGS)
    damaged = Batch(Signal.TRACES, b"\x0a\xff", Receipt(lambda: None), 0)
    empty = Batch(Signal.TRACES, b"", Receipt(lambda: None), 0)
    for batch in (logs, damaged, empty):
        assert stamp(config, batch) is batch


def test_a_batch_that_was_stamped_is_not_stamped_again() -> None:
    config = StampConfig(("*",), attributes=STAMP)
    once = stamp(config, build_batch("chat"))
    assert stamp(config, once) is once


def test_nothing_is_held_back() -> None:
    assert list(StampStage(StampConfig(attributes=STAMP)).flush(END_OF_TIME_NS)) == []
