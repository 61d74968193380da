# The thread through the whole, all real: mini engine -> ring -> exporter process -> Collector ->
# (processor -> Collector ->) Jaeger, asserted through Jaeger's own API.
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from otel_llmprism.model.ids import derive_span_id, derive_step_trace_id
from otel_llmprism.semconv import ledger, metric, rank, request, step
from otel_llmprism.testing.jaeger import JaegerClient, JaegerSpan
from otel_llmprism.testing.processor_program import ProcessorSetup
from otel_llmprism.testing.programs import Programs, find_free_port, wait_until

ENGINE_ID = "engine-under-test"
ENGINE_SERVICE, CLIENT_SERVICE = "mini-engine", "mini-client"
BUDGET_BYTES_PER_S = 500_000
PORTS = (
    *("BACKEND_GRPC", "JAEGER_HTTP", "JAEGER_GRPC", "JAEGER_HEALTH"),
    *("COLLECTOR_GRPC", "COLLECTOR_HTTP", "COLLECTOR_HEALTH", "ENRICHED_GRPC"),
    "PROCESSOR_GRPC",
)


@dataclass(frozen=True, slots=True)
class Chain:
    """The running backend side; `collector_grpc` is where applications send."""

    jaeger: JaegerClient
    collector_grpc: int
    logs: Path
    metrics: Path
    processor: ProcessorSetup | None


@dataclass(frozen=True, slots=True)
class EngineRun:
    """What the engine said of its run when it was done."""

    requests: int
    steps: int
    seconds: float
    run: bytes

    def derive_trace_ids(self) -> dict[str, int]:
        ids = (derive_step_trace_id(ENGINE_ID, self.run, number) for number in range(self.steps))
        return {trace_id.hex(): number for number, trace_id in enumerate(ids)}


@pytest.fixture(params=["without processor", "with processor"])
def chain(
    request: pytest.FixtureRequest,
    programs: Programs,
    tools: Mapping[str, Path],
    configurations: Path,
    tmp_path: Path,
) -> Chain:
    ports = {name: find_free_port() for name in PORTS}
    environment = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    environment |= {
        "LOGS_FILE": str(tmp_path / "logs.jsonl"),
        "METRICS_FILE": str(tmp_path / "metrics.jsonl"),
    }
    quiet = environment | {"OTEL_TRACES_SAMPLER": "always_off"}  # Jaeger traces itself otherwise
    jaeger = programs.start("jaeger", [tools["jaeger"], "--config", configurations / "jaeger.yaml"], quiet)
    # First the backend: what meets a closed door is sent again only after seconds.
    jaeger.await_port(ports["BACKEND_GRPC"]).await_port(ports["JAEGER_HTTP"])
    is_with_processor = request.param == "with processor"
    enriched = f"grpc://{environment['ENRICHED_GRPC']}"
    processor = ProcessorSetup(tmp_path, enriched, grpc_port=ports["PROCESSOR_GRPC"])
    if is_with_processor:
        processor.start(programs).await_port(processor.grpc_port)
    config = configurations / ("collector-inline.yaml" if is_with_processor else "collector.yaml")
    collector = programs.start("collector", [tools["otelcol-llmprism"], "--config", config], environment)
    collector.await_port(ports["COLLECTOR_GRPC"])
    return Chain(
        JaegerClient(ports["JAEGER_HTTP"]),
        ports["COLLECTOR_GRPC"],
        tmp_path / "logs.jsonl",
        tmp_path / "metrics.jsonl",
        processor if is_with_processor else None,
    )


def run_engine(programs: Programs, chain: Chain, requests: int, *arguments: str, steps: str) -> EngineRun:
    """Run the mini engine to its end; its exporter process ends with it or soon after."""
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{chain.collector_grpc}",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        "OTEL_SERVICE_NAME": ENGINE_SERVICE,
        "MINI_ENGINE_CLIENT_NAME": CLIENT_SERVICE,
        "OTEL_METRIC_EXPORT_INTERVAL": "1000",
        "OTEL_LLMPRISM_MODE": "sentinel",
        "OTEL_LLMPRISM_ENGINE_ID": ENGINE_ID,
        "OTEL_LLMPRISM_STEPS": steps,
    }
    command = [sys.executable, "-m", "otel_llmprism.testing.mini_engine", "--requests", str(requests)]
    engine = programs.start("engine", [*command, *arguments], environment)
    assert engine.wait(120) == 0
    summary = json.loads(engine.read_log().strip().splitlines()[-1])
    assert summary["engine"] == ENGINE_ID
    return EngineRun(requests, summary["steps"], summary["seconds"], bytes.fromhex(summary["run"]))


def find_requests(chain: Chain) -> list[JaegerSpan]:
    traces = chain.jaeger.find_traces(ENGINE_SERVICE)
    return [span for spans in traces.values() for span in spans if span.name == request.SPAN_REQUEST]


def await_requests(chain: Chain, count: int) -> list[JaegerSpan]:
    def all_requests() -> list[JaegerSpan]:
        found = find_requests(chain)
        return found if len(found) >= count else []

    return wait_until(all_requests, f"fewer than {count} request spans in Jaeger")


def test_every_request_and_step_is_in_jaeger_and_links_lead_both_ways(
    programs: Programs, chain: Chain
) -> None:
    run = run_engine(programs, chain, 12, "--rate", "30", "--ranks", "2", "--output", "12", steps="all")
    requests = await_requests(chain, run.requests)
    assert len(requests) == run.requests
    check_request_traces(chain, requests)
    check_step_traces(chain, run, {(span.trace_id, span.span_id) for span in requests})
    check_ledger(chain, run)


def check_request_traces(chain: Chain, requests: list[JaegerSpan]) -> None:
    """Each request is a child of its client's span, with queue, prefill and decode below it."""
    for span in requests:
        trace, client = await_client(chain, span.trace_id)
        assert client.tags["span.kind"] == "client"
        assert span.parent_id == client.span_id
        children = {child.name for child in trace if child.parent_id == span.span_id}
        assert (
            children >= {request.SPAN_PREFILL, request.SPAN_DECODE} or span.tags[request.REQUEST_STEPS] == 1
        )
        assert request.SPAN_QUEUE in children
        assert span.tags[request.GEN_AI_USAGE_OUTPUT_TOKENS] >= 1


def await_client(chain: Chain, trace_id: str) -> tuple[list[JaegerSpan], JaegerSpan]:
    """Return a request's trace once its client's span is in it: that one comes in a parcel of its own."""

    def with_client() -> tuple[list[JaegerSpan], JaegerSpan] | None:
        trace = chain.jaeger.read_trace(trace_id)
        clients = [span for span in trace if span.service == CLIENT_SERVICE]
        return (trace, clients[0]) if len(clients) == 1 else None

    return wait_until(with_client, f"not one client span in trace {trace_id}", 20)


def check_step_traces(chain: Chain, run: EngineRun, requests: set[tuple[str, str]]) -> None:
    """Each step is at its derived ids with its ranks, its links hit requests, decode spans link back."""
    step_traces = run.derive_trace_ids()
    linked: Counter[tuple[str, str]] = Counter()
    for trace_id, number in step_traces.items():
        spans = await_trace(chain, trace_id)
        (root,) = [span for span in spans if span.name == step.SPAN_STEP]
        assert root.span_id == derive_span_id(bytes.fromhex(trace_id), step.SPAN_STEP).hex()
        assert root.tags[step.STEP_ID] == number
        assert root.tags[step.STEP_KEPT] == "all"
        ranks = {span.span_id for span in spans if span.name == rank.SPAN_RANK}
        assert ranks == {
            derive_span_id(bytes.fromhex(trace_id), rank.SPAN_RANK, place).hex() for place in (0, 1)
        }
        assert all(span.parent_id == root.span_id for span in spans if span.span_id in ranks)
        linked.update(root.links)
    assert set(linked) == requests
    back = {link for span in find_decodes(chain) for link in span.links}
    assert back
    assert {trace_id for trace_id, _ in back} <= step_traces.keys()
    assert all(derive_span_id(bytes.fromhex(t), step.SPAN_STEP).hex() == s for t, s in back)


def check_ledger(chain: Chain, run: EngineRun) -> None:
    """The processor has decoded every step; without one, nobody gets the ledger."""
    if chain.processor is not None:
        setup = chain.processor
        wait_until(
            lambda: setup.sum_counter("llmprism_ledger_steps_total", engine=ENGINE_ID) == run.steps,
            f"the processor does not know {run.steps} steps",
            20,
        )
    assert ledger.SCOPE not in chain.logs.read_text(), "the ledger is for the processor alone"


def await_trace(chain: Chain, trace_id: str) -> list[JaegerSpan]:
    return wait_until(lambda: chain.jaeger.read_trace(trace_id), f"trace {trace_id} is not in Jaeger", 20)


def find_decodes(chain: Chain) -> list[JaegerSpan]:
    traces = chain.jaeger.find_traces(ENGINE_SERVICE)
    return [span for spans in traces.values() for span in spans if span.name == request.SPAN_DECODE]


def test_default_policy_keeps_few_steps_within_the_byte_budget(programs: Programs, chain: Chain) -> None:
    run = run_engine(programs, chain, 150, "--rate", "40", steps="sample")
    await_requests(chain, run.requests)
    traces = chain.jaeger.find_traces(ENGINE_SERVICE)
    steps = [s for spans in traces.values() for s in spans if s.name == step.SPAN_STEP]
    expected = run.derive_trace_ids()
    assert steps, "about one step a second is kept at random"
    assert len(steps) <= run.steps / 2
    assert {span.trace_id for span in steps} <= expected.keys()
    assert {span.tags[step.STEP_KEPT] for span in steps} == {"random"}
    sent = wait_until(
        lambda: read_export_bytes(chain.metrics), "no llmprism.export.bytes in the metrics file"
    )
    assert sum(sent.values()) / run.seconds < BUDGET_BYTES_PER_S
    check_ledger(chain, run)


def read_export_bytes(path: Path) -> dict[str, float]:
    """Return the last cumulative value of every series of the exporter's own byte counter."""
    last: dict[str, float] = {}
    # The Collector is still writing: what is not ended by a newline is no line yet.
    for line in path.read_text().split("\n")[:-1] if path.exists() else ():
        for found in walk_metrics(json.loads(line)):
            if found["name"] == metric.EXPORT_BYTES:
                for point in found["sum"]["dataPoints"]:
                    key = ",".join(sorted(str(a["value"]) for a in point.get("attributes", [])))
                    last[key] = float(point.get("asInt", point.get("asDouble", 0)))
    return last


def walk_metrics(request_json: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for resource in request_json["resourceMetrics"]:
        for scope in resource["scopeMetrics"]:
            yield from scope["metrics"]
