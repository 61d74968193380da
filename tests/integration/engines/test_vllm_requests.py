# What one call of vLLM's server becomes: a request span for each request that the engine runs, below the
# caller, whatever the caller asked for.
import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_llmprism.model.signals import Signal
from otel_llmprism.testing.engine_server import PLAIN, ServerShape
from otel_llmprism.testing.otlp_server import OtlpServer
from otel_llmprism.testing.programs import wait_until

REQUEST = "llmprism.request"
SERVER, INTERNAL = 2, 1
OK = http.HTTPStatus.OK


@dataclass
class Traced:
    """A server whose own tracing is on, and where spans go: vLLM makes its endpoint everybody's."""

    case: Any
    backend: OtlpServer

    def list_spans(self, name: str) -> list[Any]:
        requests = [
            ExportTraceServiceRequest.FromString(one.payload) for one in self.backend.received(Signal.TRACES)
        ]
        spans = [s for r in requests for rs in r.resource_spans for ss in rs.scope_spans for s in ss.spans]
        # vLLM's provider sends its span, or the one that the launcher has set up before, to its own endpoint.
        return [span for span in (*spans, *self.case.list_spans(name)) if span.name == name]


@pytest.fixture(scope="module")
def traced(engines: Any) -> Iterator[Traced]:
    with OtlpServer() as backend:
        own = ("--otlp-traces-endpoint", f"http://127.0.0.1:{backend.grpc_port}")
        yield Traced(engines.serve(ServerShape("traced", (*PLAIN.arguments, *own))), backend)
        engines.end()


def ask(
    traced: Traced, name: str, traceparent: str = "", path: str = "/v1/completions", **changes: Any
) -> Any:
    """Send one request and return the parsed answer."""
    body = {
        "model": traced.case.server.model,
        "prompt": "w5 w6 w7",
        "max_tokens": 8,
        "ignore_eos": True,
        **changes,
    }
    headers = {"X-Request-Id": name, **({"traceparent": traceparent} if traceparent else {})}
    headers["Content-Type"] = "application/json"
    connection = http.client.HTTPConnection("127.0.0.1", traced.case.server.port, timeout=60)
    try:
        connection.request("POST", path, json.dumps(body), {k: v.encode() for k, v in headers.items()})
        response = connection.getresponse()
        assert response.status == OK, response.read()
        return json.loads(response.read())
    finally:
        connection.close()


def read_attributes(span: Any) -> dict[str, Any]:
    values = {a.key: (a.value.WhichOneof("value"), a.value) for a in span.attributes}
    return {key: getattr(value, kind) for key, (kind, value) in values.items() if kind}


def find_requests(traced: Traced, name: str, count: int) -> list[Any]:
    """Return the request spans of one call, once there are so many."""

    def find() -> list[Any]:
        spans = [s for s in traced.list_spans(REQUEST) if name in read_attributes(s)["llmprism.request.id"]]
        return spans if len(spans) == count else []

    return wait_until(find, f"{name} did not become {count} request spans")


def find_own_span(traced: Traced, trace_id: bytes) -> Any:
    """Return the span that vLLM makes by itself."""

    def find() -> list[Any]:
        return [span for span in traced.list_spans("llm_request") if span.trace_id == trace_id]

    (span,) = wait_until(find, "vLLM's own span did not come")
    return span


def make_traceparent(number: int, flags: str = "01") -> str:
    return f"00-{number:032x}-{number + 1:016x}-{flags}"


def test_a_call_becomes_a_server_span_below_its_caller_with_three_children(traced: Traced) -> None:
    ask(traced, "plain-call", make_traceparent(0xA1))
    (span,) = find_requests(traced, "plain-call", 1)
    assert int.from_bytes(span.trace_id, "big") == 0xA1
    assert int.from_bytes(span.parent_span_id, "big") == 0xA2
    assert span.kind == SERVER
    said = read_attributes(span)
    assert said["gen_ai.usage.output_tokens"] == 8
    assert "plain-call" in said["llmprism.request.external_id"]
    assert said["llmprism.request.id"] != said["llmprism.request.external_id"]
    for phase in ("queue", "prefill", "decode"):
        children = [s for s in traced.list_spans(f"{REQUEST}.{phase}") if s.parent_span_id == span.span_id]
        assert [child.kind for child in children] == [INTERNAL]
        assert children[0].start_time_unix_nano >= span.start_time_unix_nano


def test_vllms_own_span_stays_below_the_caller(traced: Traced) -> None:
    ask(traced, "both-call", make_traceparent(0xB1))
    (span,) = find_requests(traced, "both-call", 1)
    own = find_own_span(traced, span.trace_id)
    assert own.parent_span_id == span.parent_span_id


def test_without_a_caller_vllms_own_span_joins_our_trace(traced: Traced) -> None:
    ask(traced, "root-call")
    (span,) = find_requests(traced, "root-call", 1)
    assert span.parent_span_id == b""
    own = find_own_span(traced, span.trace_id)
    assert own.parent_span_id == span.span_id


def test_several_choices_are_siblings_below_the_caller(traced: Traced) -> None:
    answer = ask(traced, "several-choices", make_traceparent(0xC1), n=3, temperature=1.0)
    assert len(answer["choices"]) == 3
    spans = find_requests(traced, "several-choices", 3)
    assert {int.from_bytes(span.trace_id, "big") for span in spans} == {0xC1}
    assert {int.from_bytes(span.parent_span_id, "big") for span in spans} == {0xC2}
    assert len({span.span_id for span in spans}) == 3


def test_several_prompts_are_siblings_below_the_caller(traced: Traced) -> None:
    ask(traced, "several-prompts", make_traceparent(0xD1), prompt=["w5 w6", "w7 w8 w9"])
    spans = find_requests(traced, "several-prompts", 2)
    assert {int.from_bytes(span.parent_span_id, "big") for span in spans} == {0xD2}
    assert sorted(read_attributes(span)["gen_ai.usage.input_tokens"] for span in spans) == [2, 3]


def test_an_unsampled_caller_gets_no_span(traced: Traced) -> None:
    ask(traced, "unsampled-call", make_traceparent(0xE1, "00"))
    ask(traced, "call-after-it", make_traceparent(0xE3))
    find_requests(traced, "call-after-it", 1)
    names = [read_attributes(span)["llmprism.request.id"] for span in traced.list_spans(REQUEST)]
    assert not [name for name in names if "unsampled-call" in name]


@pytest.mark.parametrize(
    "traceparent", ["x", "00-0-0-01", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", "ü" * 600]
)
def test_a_malformed_context_makes_a_root(traced: Traced, traceparent: str) -> None:
    name = f"malformed-{len(traceparent)}"
    ask(traced, name, traceparent)
    (span,) = find_requests(traced, name, 1)
    assert span.parent_span_id == b""


@pytest.mark.parametrize("name", ["ünïcödé-ïd", "long-" + "i" * 10_000])
def test_any_request_id_is_served_and_kept_in_bounds(traced: Traced, name: str) -> None:
    ask(traced, name, make_traceparent(0xF0 + len(name)))
    trace_id = 0xF0 + len(name)

    def find() -> list[Any]:
        return [s for s in traced.list_spans(REQUEST) if int.from_bytes(s.trace_id, "big") == trace_id]

    (span,) = wait_until(find, "no request span")
    said = read_attributes(span)
    assert len(said["llmprism.request.id"].encode()) <= 160
    assert len(said["llmprism.request.external_id"].encode()) <= 160


def test_a_stop_string_is_a_stop_though_the_engine_was_told_to_abort(traced: Traced) -> None:
    answer = ask(
        traced, "stop-string", make_traceparent(0x1A1), max_tokens=200, stop=["w1", "w2", "w3", "w4"]
    )
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["stop"]
    (span,) = find_requests(traced, "stop-string", 1)
    (reason,) = read_attributes(span)["gen_ai.response.finish_reasons"].values
    assert reason.string_value == "stop"
