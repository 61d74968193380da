# The sentinel inside the real processor: a made ledger goes in over OTLP, what it finds arrives at a backend.
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_llmprism.exporters.otlp_client import OtlpClient
from otel_llmprism.exporters.otlp_client_config import OtlpClientConfig
from otel_llmprism.exporters.otlp_client_result import SendStatus
from otel_llmprism.model.signals import Signal
from otel_llmprism.service.processor import Processor
from otel_llmprism.service.sentinel.own_mark import MARK
from otel_llmprism.service.settings import read_processor_config
from otel_llmprism.testing.made_ledger import MadeLedger, Slow
from otel_llmprism.testing.otlp_server import OtlpServer

ANY_PORT = {"endpoint": "127.0.0.1:0"}
GIVE_UP_S = 150.0  # a fit takes seconds, on a busy machine many
LEDGER = MadeLedger(seconds=140, slow=(Slow(110, 140, 2.0),))
RESOURCE = {"service.name": "shop", "llmprism.engine.name": "made", "llmprism.job.id": "job-1"}


class Watched:
    """A processor with its client and the backend behind it."""

    def __init__(self, folder: Path, mode: str, **sections: Any) -> None:
        self.backend = OtlpServer().__enter__()
        config = {
            "receivers": {"otlp": {"protocols": {"grpc": ANY_PORT}}},
            "exporters": {"otlp": {"endpoint": self.backend.grpc_endpoint}},
            "log": {"directory": str(folder / "log")},
            "health": ANY_PORT,
            "mode": mode,
            **sections,
        }
        self.config = read_processor_config(config, "test")
        self.processor = Processor(self.config, {})
        self.processor.start()
        port = self.processor.find_port("otlp_grpc")
        self.client = OtlpClient(OtlpClientConfig(endpoint=f"grpc://127.0.0.1:{port}"))

    def send(self, requests: list[bytes]) -> None:
        for request in requests:
            assert self.client.send(Signal.LOGS, request).status is SendStatus.DELIVERED

    def fetch(self, path: str) -> str:
        url = f"http://127.0.0.1:{self.processor.health.port}{path}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return str(answer.read().decode())

    def spans(self) -> list[Span]:
        return [
            span
            for received in self.backend.received(Signal.TRACES)
            for resource in ExportTraceServiceRequest.FromString(received.payload).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def logs(self) -> list[LogRecord]:
        return [
            record
            for received in self.backend.received(Signal.LOGS)
            for resource in ExportLogsServiceRequest.FromString(received.payload).resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
        ]

    def metric_names(self) -> set[str]:
        return {
            metric.name
            for received in self.backend.received(Signal.METRICS)
            for resource in ExportMetricsServiceRequest.FromString(received.payload).resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def stop(self) -> None:
        self.client.close()
        self.processor.stop()
        self.backend.__exit__()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Watched]]:
    started: list[Watched] = []

    def begin(mode: str, **sections: Any) -> Watched:
        started.append(Watched(tmp_path, mode, **sections))
        return started[-1]

    yield begin
    for one in started:
        one.stop()


def wait_until(is_met: Callable[[], bool], what: str) -> None:
    give_up_at = time.monotonic() + GIVE_UP_S
    while not is_met():
        assert time.monotonic() < give_up_at, what
        time.sleep(0.1)


def read_attributes(record: Any) -> dict[str, Any]:
    return {
        pair.key: getattr(pair.value, pair.value.WhichOneof("value") or "string_value")
        for pair in record.attributes
    }


@pytest.mark.parametrize("mode", ["inline", "beside"])
def test_a_slow_engine_is_found_and_told_of_as_span_event_metric_and_on_the_page(
    start: Callable[[str], Watched], mode: str
) -> None:
    watched = start(mode)
    requests = list(LEDGER.list_requests(RESOURCE))
    watched.send(requests[:120])  # a minute to learn from
    wait_until(
        lambda: 'llmprism_baseline_fits_total{outcome="done"}' in watched.fetch("/metrics"), "nothing fitted"
    )
    watched.send(requests[120:])
    wait_until(lambda: any(span.name == "llmprism.finding" for span in watched.spans()), "nothing was found")
    finding = next(span for span in watched.spans() if span.name == "llmprism.finding")
    attributes = read_attributes(finding)
    assert attributes["llmprism.finding.kind"] == "step_regression"
    assert attributes["llmprism.finding.state"] == "open"
    assert len(finding.events) >= 1
    assert len(finding.links) >= 1
    (event, *_) = [record for record in watched.logs() if record.event_name == "llmprism.finding"]
    assert (event.trace_id, event.span_id) == (finding.trace_id, finding.span_id)
    wait_until(
        lambda: {"llmprism.step.expected", "llmprism.step.excess"} <= watched.metric_names(), "metrics"
    )
    assert "llmprism_finding_opened_total" in watched.fetch("/metrics")
    steps = [span for span in watched.spans() if span.name == "llmprism.step"]
    assert {read_attributes(step)["llmprism.step.kept"] for step in steps} <= {"anomalous", "finding"}
    assert all(read_attributes(step)["llmprism.step.expected_s"] > 0 for step in steps)
    assert {link.trace_id for link in finding.links} & {step.trace_id for step in steps}
    received = [one.payload for one in watched.backend.received()]
    assert not any(payload.endswith(MARK) for payload in received)
    listed = json.loads(watched.fetch("/api/llmprism/v1/findings"))["findings"]
    assert [one["kind"] for one in listed] == ["step_regression"]

    def read_engine() -> dict[str, Any]:
        (engine,) = json.loads(watched.fetch("/api/llmprism/v1/engines"))["engines"]
        return dict(engine)

    wait_until(lambda: read_engine()["state"] == "alarm", f"{read_engine()} {listed}")
    assert (read_engine()["id"], read_engine()["name"]) == ("made-engine", "made")


def test_a_reload_switches_the_sentinel_off_and_on_again(start: Callable[[str], Watched]) -> None:
    watched = start("inline")
    requests = MadeLedger(seconds=120).list_requests(RESOURCE)

    def is_seen() -> bool:
        return bool(json.loads(watched.fetch("/api/llmprism/v1/engines"))["engines"])

    config = watched.config
    off = replace(config.processors.sentinel, enabled=False)
    watched.processor.reload(replace(config, processors=replace(config.processors, sentinel=off)))
    watched.send([next(requests)])
    assert not is_seen()
    watched.processor.reload(config)

    def is_seen_again() -> bool:  # new stages begin at the next flush
        watched.send([next(requests)])
        return is_seen()

    wait_until(is_seen_again, "the engine is not seen")


def test_forwarded_ledgers_are_watched_as_well(start: Callable[..., Watched]) -> None:
    watched = start("inline", ledger={"forward": True})
    requests = list(MadeLedger(seconds=1).list_requests(RESOURCE))
    watched.send(requests)
    wait_until(lambda: len(watched.backend.received(Signal.LOGS)) >= len(requests), "nothing went on")
    assert {one.payload for one in watched.backend.received(Signal.LOGS)} == set(requests)
    engines = '"id":"made-engine"'
    wait_until(lambda: engines in watched.fetch("/api/llmprism/v1/engines").replace(" ", ""), "not watched")


def test_only_this_machine_may_ask_the_sentinel_without_a_token(start: Callable[[str], Watched]) -> None:
    watched = start("inline")
    url = f"http://127.0.0.1:{watched.processor.health.port}/api/llmprism/v1/findings"
    for headers in ({"Host": "evil.example"}, {"Origin": "http://evil.example"}):
        with (
            pytest.raises(urllib.error.HTTPError) as refused,
            urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=10),
        ):
            pass
        assert refused.value.code == 403
        refused.value.close()
