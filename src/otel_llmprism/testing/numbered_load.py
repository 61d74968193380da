# A load whose every span has a number of its own: sent from threads through whatever happens to the server,
# with the numbers that were acknowledged kept, and found again in what a backend received.
import itertools
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Self

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_llmprism.exporters.otlp_client import OtlpClient
from otel_llmprism.exporters.otlp_client_config import OtlpClientConfig
from otel_llmprism.exporters.otlp_client_result import SendResult, SendStatus
from otel_llmprism.model.signals import Signal
from otel_llmprism.testing.otlp_server import Received

SEND_TIMEOUT_S = 10.0


def build_numbered_request(first: int, count: int = 1, padding: str = "", start_ns: int = 1) -> bytes:
    """Return a trace request with the spans `first` to `first + count - 1`, each with the padding."""
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    for number in range(first, first + count):
        span = scope.spans.add(
            name="numbered", start_time_unix_nano=start_ns, end_time_unix_nano=start_ns + 1
        )
        span.trace_id, span.span_id = (number + 1).to_bytes(16, "big"), (number + 1).to_bytes(8, "big")
        if padding:
            span.attributes.add(key="padding").value.string_value = padding
    return request.SerializeToString()


def count_numbers(received: Iterable[Received]) -> Counter[int]:
    """Return how often each number arrived."""
    numbers: Counter[int] = Counter()
    for one in received:
        for resource in ExportTraceServiceRequest.FromString(one.payload).resource_spans:
            for scope in resource.scope_spans:
                numbers.update(int.from_bytes(span.span_id, "big") - 1 for span in scope.spans)
    return numbers


class NumberedLoad:
    """Sends from the start to the end of a `with` block; may be entered again and goes on counting.

    A request that is not acknowledged is never sent again: its numbers may or may not arrive.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        threads: int = 4,
        spans: int = 10,
        padding: str = "",
        pause_s: float = 0.002,
        max_requests: int = 1 << 30,
        first_request: int = 0,
        start_ns: int = 1,
    ) -> None:
        self._endpoint = endpoint
        self._thread_count = threads
        self._spans = spans
        self._padding = padding
        self._pause_s = pause_s
        self._start_ns = start_ns
        self._numbers = itertools.count(first_request)
        self._end_request = first_request + max_requests
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._threads: list[threading.Thread] = []
        self.acknowledged: set[int] = set()
        self.refusals: list[SendResult] = []

    def __enter__(self) -> Self:
        self._is_over.clear()
        self._threads = [threading.Thread(target=self._send_on) for _ in range(self._thread_count)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.wait()

    def wait(self) -> None:
        """Return once `max_requests` were sent."""
        for thread in self._threads:
            thread.join()

    def _send_on(self) -> None:
        client = OtlpClient(OtlpClientConfig(endpoint=self._endpoint))
        try:
            while not self._is_over.is_set() and (request := next(self._numbers)) < self._end_request:
                self._send_one(client, request * self._spans)
                self._is_over.wait(self._pause_s)
        finally:
            client.close()

    def _send_one(self, client: OtlpClient, first: int) -> None:
        payload = build_numbered_request(first, self._spans, self._padding, self._start_ns)
        result = client.send(Signal.TRACES, payload, SEND_TIMEOUT_S)
        with self._lock:
            if result.status is SendStatus.DELIVERED:
                self.acknowledged.update(range(first, first + self._spans))
            else:
                self.refusals.append(result)
