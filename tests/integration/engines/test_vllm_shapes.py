# vLLM in more than one process: ranks of one step, front ends of one engine. All in one run, joined by ids.
from collections import Counter
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_llmprism.model.signals import Signal
from otel_llmprism.testing.engine_load import LoadPlan, build_asks
from otel_llmprism.testing.engine_server import TENSOR_PARALLEL_2, TWO_FRONT_ENDS, ServerShape

TWO_REPLICAS = ServerShape(
    "two-replicas",
    ("--max-model-len", "512", "--max-num-seqs", "16", "--data-parallel-size", "2"),
    {"VLLM_CPU_OMP_THREADS_BIND": "0|1"},
)


def read_attributes(span: Any) -> dict[str, Any]:
    values = {a.key: (a.value.WhichOneof("value"), a.value) for a in span.attributes}
    return {key: getattr(value, kind) for key, (kind, value) in values.items() if kind}


def test_every_step_of_two_ranks_has_both(engines: Any) -> None:
    case = engines.serve(TENSOR_PARALLEL_2, {"OTEL_LLMPRISM_STEPS": "all"})
    case.send(build_asks(LoadPlan(12, seed=3, max_tokens=(2, 16))), concurrency=6)
    case.finish()
    steps = {span.span_id: span for span in case.list_spans("llmprism.step")}
    assert len(steps) == len(case.read_book().steps)
    ranks: dict[bytes, set[int]] = {span_id: set() for span_id in steps}
    for span in case.list_spans("llmprism.rank"):
        said = read_attributes(span)
        assert said["llmprism.rank.global"] == said["llmprism.rank.tp"]
        ranks[span.parent_span_id].add(said["llmprism.rank.global"])
    assert set(map(frozenset, ranks.values())) == {frozenset({0, 1})}


def test_two_front_ends_serve_one_engine_in_one_run(engines: Any) -> None:
    case = engines.serve(TWO_FRONT_ENDS, {"OTEL_LLMPRISM_STEPS": "all"})
    asks = build_asks(LoadPlan(40, seed=4, max_tokens=(2, 24), cancelled=0.1))
    case.send(asks, concurrency=16)
    case.finish()
    book, chunks = case.read_book(), case.read_ledger()
    arrivals = [handle for tables in chunks for handle in tables.arrivals.handle.tolist()]
    assert len(arrivals) == len(set(arrivals)) == len(book.ends)
    steps = [read_attributes(span)["llmprism.step.id"] for span in case.list_spans("llmprism.step")]
    assert sorted(steps) == list(range(len(book.steps)))
    callers = {ask.traceparent.split("-")[1] for ask in asks}
    traces = Counter(span.trace_id.hex() for span in case.list_spans("llmprism.request"))
    assert set(traces) <= callers
    assert set(traces.values()) == {1}
    assert len(traces) == len(book.ends)


def test_replicas_are_engines_of_their_own_under_one_base_id(engines: Any) -> None:
    case = engines.serve(TWO_REPLICAS, {"OTEL_LLMPRISM_ENGINE_ID": "pair"})
    asks = build_asks(LoadPlan(24, seed=5, max_tokens=(4, 16)))
    answers = case.send(asks, concurrency=8)
    case.finish()
    assert {answer.finish for answer in answers} == {"length"}
    requests = [ExportTraceServiceRequest.FromString(o.payload) for o in case.backend.received(Signal.TRACES)]
    resources = [resource_spans for request in requests for resource_spans in request.resource_spans]
    found = {
        span.trace_id.hex(): read_attributes(resource_spans.resource)["llmprism.engine.id"]
        for resource_spans in resources
        for scope in resource_spans.scope_spans
        for span in scope.spans
        if span.name == "llmprism.request"
    }
    assert set(found) == {ask.traceparent.split("-")[1] for ask in asks}
    assert set(found.values()) == {"pair/dp0", "pair/dp1"}
    assert all(read_attributes(s)["llmprism.request.ttft_s"] > 0 for s in case.list_spans("llmprism.request"))
