# The health endpoints over a real socket: alive, ready, metrics in both text formats.
import contextlib
import http.client
import time
from collections.abc import Iterator

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.listen_address import ListenError
from otel_llmprism.service.health import HealthConfig, HealthServer
from otel_llmprism.testing.contracts import check_source_contract

ANYWHERE = HealthConfig(endpoint="127.0.0.1:0")


class Service:
    def __init__(self) -> None:
        self.counters = Counters()
        self.unready = "starting"
        self.server = HealthServer(ANYWHERE, self.counters, lambda: self.unready)

    def ask(self, path: str, accept: str = "*/*") -> tuple[int, str, str]:
        address = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=20)
        with contextlib.closing(address) as connection:
            connection.request("GET", path, headers={"Accept": accept})
            response = connection.getresponse()
            return response.status, response.read().decode(), response.headers["Content-Type"]


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    service.server.start()
    yield service
    service.server.stop(time.monotonic_ns() + 5_000_000_000)


def test_health_server_keeps_the_contract_of_a_source() -> None:
    check_source_contract(
        lambda: HealthServer(ANYWHERE, Counters(), str), time.monotonic_ns() + 10_000_000_000
    )


def test_alive_service_answers_even_while_it_is_not_ready(service: Service) -> None:
    assert service.ask("/healthz")[:2] == (200, "ok\n")


def test_readiness_follows_the_function_and_says_why_not(service: Service) -> None:
    assert service.ask("/readyz")[:2] == (503, "not ready: starting\n")
    service.unready = ""
    assert service.ask("/readyz")[:2] == (200, "ready\n")


def test_metrics_are_plain_text_by_default_and_openmetrics_on_request(service: Service) -> None:
    service.counters.add("llmprism.lost", 3, stage="otlp_grpc", cause="bad_id")
    service.counters.set("llmprism.queue.oldest_age", 0.5)
    status, plain, _ = service.ask("/metrics")
    assert status == 200
    names = {family.name for family in parse_plain(plain)}
    assert {"llmprism_lost", "llmprism_queue_oldest_age_seconds", "process_cpu_seconds"} <= names
    accept = "application/openmetrics-text; version=1.0.0"
    _, text, content_type = service.ask("/metrics", accept)
    assert content_type.startswith("application/openmetrics-text")
    families = openmetrics.text_string_to_metric_families(text)  # type: ignore[no-untyped-call]
    [lost] = [family for family in families if family.name == "llmprism_lost"]
    [sample] = lost.samples
    assert (sample.name, sample.value) == ("llmprism_lost_total", 3)
    assert sample.labels == {"stage": "otlp_grpc", "cause": "bad_id"}


def test_port_in_use_is_one_clear_error(service: Service) -> None:
    other = HealthServer(HealthConfig(endpoint=f"127.0.0.1:{service.server.port}"), Counters(), str)
    with pytest.raises(ListenError, match="another program listens there"):
        other.start()
