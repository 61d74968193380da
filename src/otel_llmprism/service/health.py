# Is it alive, is it ready, what does it count: /healthz, /readyz and /metrics on one address.
# Reads counters and a readiness function; knows nothing of the pipeline behind them.
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.asgi_listener import AsgiListener
from otel_llmprism.receivers.listen_address import parse_listen_address
from otel_llmprism.semconv import baseline, intake, metric, pipeline, sentinel, store
from otel_llmprism.service.prometheus_text import CountersCollector

UNITS: Mapping[str, str] = {
    **metric.UNITS,
    **pipeline.UNITS,
    **intake.UNITS,
    **store.UNITS,
    **baseline.UNITS,
    **sentinel.UNITS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthConfig:
    endpoint: str = "127.0.0.1:13133"


class HealthServer:
    """A Source; `find_unready` says why the service is not ready, or nothing when it is."""

    def __init__(
        self,
        config: HealthConfig,
        counters: Counters,
        find_unready: Callable[[], str],
        further: Sequence[Route] = (),
    ) -> None:
        self._config = config
        self._app = build_health_app(counters, find_unready, further)
        self._listener: AsgiListener | None = None
        self.port = 0

    def start(self) -> None:
        """Listen; raises ConfigError or ListenError, each with the mend."""
        listener = AsgiListener(self._app, parse_listen_address(self._config.endpoint), name="health")
        listener.start()
        self.port = listener.port
        self._listener = listener

    def stop(self, deadline_ns: int) -> None:
        """Accept nothing more; running answers finish until `deadline_ns`."""
        if self._listener is not None:
            self._listener.stop(deadline_ns)


def build_health_app(
    counters: Counters, find_unready: Callable[[], str], further: Sequence[Route] = ()
) -> Starlette:
    """Return the three routes and `further` ones as an application, for a server or a test client."""
    registry = CollectorRegistry()
    registry.register(CountersCollector(counters, UNITS))
    ProcessCollector(registry=registry)

    async def answer_alive(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    def answer_ready(_request: Request) -> Response:
        why = find_unready()
        return PlainTextResponse(f"not ready: {why}\n" if why else "ready\n", 503 if why else 200)

    def answer_metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"content-type": content_type})

    return Starlette(
        routes=[
            Route("/healthz", answer_alive),
            Route("/readyz", answer_ready),
            Route("/metrics", answer_metrics),
            *further,
        ]
    )
