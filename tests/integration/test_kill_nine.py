# Twenty times kill -9 of the processor at a random (seeded) moment under load, then a restart: every span
# that was acknowledged is at the backend; what came twice is counted.
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_llmprism.model.signals import Signal
from otel_llmprism.testing.otlp_server import OtlpServer, Refuse, Reset
from otel_llmprism.testing.processor_program import ProcessorSetup
from otel_llmprism.testing.programs import Programs, wait_until

RUNS = 20
SEED = 20
SPANS_PER_REQUEST = 50
CLIENTS = 3
IN_FLIGHT_REQUESTS = 10  # the exporter's default
METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


class Load:
    """Clients that send until told to stop; remembers which span ids were acknowledged."""

    def __init__(self, port: int, first_id: int) -> None:
        self._port = port
        self._next_id = first_id
        self._lock = threading.Lock()
        self._over = threading.Event()
        self.acknowledged: list[int] = []
        self._threads = [threading.Thread(target=self._send_until_over) for _ in range(CLIENTS)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    @property
    def next_id(self) -> int:
        return self._next_id

    def await_acknowledged(self, count: int) -> None:
        wait_until(lambda: len(self.acknowledged) >= count, f"no {count} spans are acknowledged")

    def _send_until_over(self) -> None:
        with grpc.insecure_channel(f"127.0.0.1:{self._port}") as channel:
            export = channel.unary_unary(METHOD)
            while not self._over.is_set():
                ids = self._take_ids()
                try:
                    export(build_request(ids), timeout=5)
                except grpc.RpcError:  # refused or dead: not acknowledged
                    self._over.wait(0.01)
                else:
                    with self._lock:
                        self.acknowledged += ids

    def _take_ids(self) -> range:
        with self._lock:
            first = self._next_id
            self._next_id += SPANS_PER_REQUEST
        return range(first, first + SPANS_PER_REQUEST)


def build_request(ids: range) -> bytes:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for number in ids:
        raw = number.to_bytes(8, "big")
        scope.spans.add(trace_id=b"\1" * 8 + raw, span_id=raw, name="load")
    encoded: bytes = request.SerializeToString()
    return encoded


@pytest.fixture
def backend() -> Iterator[OtlpServer]:
    with OtlpServer() as server:
        yield server


def test_every_acknowledged_span_survives_twenty_kills(
    programs: Programs,
    backend: OtlpServer,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    rng = random.Random(SEED)
    setup = ProcessorSetup(tmp_path, backend.grpc_endpoint)
    acknowledged: set[int] = set()
    next_id = 1
    for run in range(RUNS):
        # Some die with a working backend, some with a full log behind one that refuses or resets.
        backend.follow(then=(None, Refuse(), Reset())[run % 3])
        processor = setup.start(programs).await_port(setup.grpc_port)
        with Load(setup.grpc_port, next_id) as load:
            load.await_acknowledged(rng.randrange(1, 40) * SPANS_PER_REQUEST)
            threading.Event().wait(rng.random() * 0.05)  # any moment, not only after an answer
            processor.kill()
        next_id = load.next_id
        acknowledged.update(load.acknowledged)
    backend.follow()
    last = setup.start(programs).await_port(setup.grpc_port)
    wait_until(lambda: not (acknowledged - read_ids(backend).keys()), "acknowledged spans are missing")
    assert last.stop() == 0
    arrived = read_ids(backend)
    assert all(number < next_id for number in arrived), "an id that nobody sent"
    twice = arrived.total() - len(arrived)
    record_property("spans", {"acknowledged": len(acknowledged), "arrived": len(arrived), "twice": twice})
    # Only what was on its way when the processor died may come twice, not the log again and again.
    assert twice <= RUNS * IN_FLIGHT_REQUESTS * SPANS_PER_REQUEST


def read_ids(backend: OtlpServer) -> Counter[int]:
    """Return how often each id arrived."""
    ids: Counter[int] = Counter()
    for one in backend.received(Signal.TRACES):
        for resource in ExportTraceServiceRequest.FromString(one.payload).resource_spans:
            ids.update(
                int.from_bytes(s.span_id, "big") for scope in resource.scope_spans for s in scope.spans
            )
    return ids
