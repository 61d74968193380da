from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.pipeline.ingress import Feed, build_ingress
from otel_llmprism.pipeline.ingress_config import Durability, IngressConfig
from otel_llmprism.pipeline.ports import Outcome
from otel_llmprism.testing.clocks import FakeClock


def build(counters: Counters, queue_bytes: int = 100) -> Feed:
    config = IngressConfig(Durability.MEMORY, queue_bytes=queue_bytes, queue_requests=10)
    return build_ingress(config, counters, FakeClock())


def test_request_before_start_is_refused_with_retry() -> None:
    verdict = build(Counters()).offer(Signal.TRACES, b"a")
    assert verdict.outcome is Outcome.UNAVAILABLE
    assert verdict.retry_after_s > 0


def test_accepted_request_comes_out_as_a_batch() -> None:
    counters = Counters()
    ingress = build(counters)
    ingress.start()
    assert ingress.offer(Signal.LOGS, b"abc").outcome is Outcome.ACCEPTED
    batch = ingress.take(0)
    assert batch is not None
    assert (batch.signal, batch.payload) == (Signal.LOGS, b"abc")
    assert counters.value("llmprism.ingress.bytes", signal="logs") == 3
    assert ingress.take(0) is None


def test_full_queue_is_busy_with_retry_and_counted() -> None:
    counters = Counters()
    ingress = build(counters, queue_bytes=4)
    ingress.start()
    ingress.offer(Signal.TRACES, b"abcd")
    verdict = ingress.offer(Signal.TRACES, b"e")
    assert verdict.outcome is Outcome.BUSY
    assert verdict.retry_after_s > 0
    assert "4 bytes" in verdict.why
    assert counters.value("llmprism.ingress.requests", signal="traces", outcome="busy") == 1


def test_closed_ingress_refuses_as_unavailable_and_still_drains() -> None:
    ingress = build(Counters())
    ingress.start()
    ingress.offer(Signal.TRACES, b"a")
    ingress.close()
    assert ingress.offer(Signal.TRACES, b"b").outcome is Outcome.UNAVAILABLE
    assert ingress.take(0) is not None
    assert ingress.take(60.0) is None


def test_release_counts_the_records_that_were_left() -> None:
    counters = Counters()
    ingress = build(counters, queue_bytes=1000)
    ingress.start()
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for name in ("a", "b", "c"):
        scope.spans.add(name=name)
    ingress.offer(Signal.TRACES, request.SerializeToString())
    ingress.offer(Signal.TRACES, b"\xff\xff not a request")
    ingress.release()
    assert counters.value("llmprism.lost", stage="queue", cause="shutdown") == 3 + 1


def test_ingress_starts_again_after_release() -> None:
    ingress = build(Counters())
    for _ in range(2):
        ingress.start()
        assert ingress.offer(Signal.TRACES, b"a").outcome is Outcome.ACCEPTED
        ingress.release()


def test_gauges_say_bytes_count_and_age() -> None:
    counters = Counters()
    clock = FakeClock()
    ingress = build_ingress(IngressConfig(), counters, clock)
    ingress.start()
    ingress.offer(Signal.TRACES, b"abc")
    ingress.record_gauges(clock.advance(seconds=2))
    assert counters.value("llmprism.queue.bytes") == 3
    assert counters.value("llmprism.queue.requests") == 1
    assert counters.value("llmprism.queue.oldest_age") == 2
