import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_llmprism.model.signals import Signal
from otel_llmprism.native.otlp import scan
from otel_llmprism.pipeline.batch import Batch
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.hold import Claim, Hold, HoldConfig
from otel_llmprism.pipeline.stage import END_OF_TIME_NS
from otel_llmprism.testing.contracts import build_batch, check_stage_contract


def encode(*names: str) -> bytes:
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.add(key="service.name").value.string_value = "s"
    for name in names:
        resource.scope_spans.add().spans.add(name=name, trace_id=bytes(15) + b"1", span_id=bytes(7) + b"1")
    return request.SerializeToString()


def list_names(batch: Batch) -> list[str]:
    request = ExportTraceServiceRequest.FromString(batch.payload)
    return [
        span.name
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def claim_ours(batch: Batch) -> Claim | None:
    names = list_names(batch)
    return Claim(scan(batch.payload, batch.signal), bytes(name.startswith("our") for name in names))


def build(counters: Counters | None = None, max_bytes: int = 1 << 20) -> Hold:
    return Hold(HoldConfig(hold_s=2.0, max_bytes=max_bytes), claim_ours, counters or Counters())


def test_unclaimed_batch_passes_at_once_as_the_same_object() -> None:
    batch, _ = build_batch(encode("their 1", "their 2"))
    assert list(build().consume(batch)) == [batch]


def test_other_signals_pass_without_a_question() -> None:
    batch, _ = build_batch(b"\xff not even a request", Signal.LOGS)
    assert list(build().consume(batch)) == [batch]


def test_claimed_spans_wait_and_the_rest_passes() -> None:
    hold = build()
    batch, tracker = build_batch(encode("their 1", "our 1", "their 2", "our 2"), arrived_ns=10)
    (passing,) = hold.consume(batch)
    assert list_names(passing) == ["their 1", "their 2"]
    passing.receipt.settle()
    assert list(hold.flush(10 + 2_000_000_000 - 1)) == []
    (held,) = hold.flush(10 + 2_000_000_000)
    assert list_names(held) == ["our 1", "our 2"]
    assert tracker.settled == 0
    held.receipt.settle()
    assert tracker.settled == 1


def test_wholly_claimed_batch_is_held_as_it_came() -> None:
    hold = build()
    batch, _ = build_batch(encode("our 1"))
    assert list(hold.consume(batch)) == []
    assert list(hold.flush(END_OF_TIME_NS)) == [batch]


def test_oldest_leave_early_at_the_bound_and_are_counted() -> None:
    counters = Counters()
    size = len(encode("our 1"))
    hold = build(counters, max_bytes=2 * size)
    batches = [build_batch(encode(f"our {number}"), arrived_ns=number)[0] for number in range(3)]
    assert [list(hold.consume(batch)) for batch in batches] == [[], [], [batches[0]]]
    assert counters.value("llmprism.hold.early") == 1
    hold.flush(0)
    assert counters.value("llmprism.hold.bytes") == 2 * size
    assert list(hold.flush(END_OF_TIME_NS)) == batches[1:]


def test_piece_above_the_bound_is_not_held_at_all() -> None:
    hold = build(max_bytes=1)
    batch, _ = build_batch(encode("our 1"))
    assert list(hold.consume(batch)) == [batch]


def test_hold_keeps_the_stage_contract() -> None:
    payloads = [encode("our 1", "their"), encode("their"), encode("our 1"), encode()]
    check_stage_contract(build, [(Signal.TRACES, payload) for payload in payloads] + [(Signal.LOGS, b"x")])


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="hold_s"):
        HoldConfig(hold_s=-1)
