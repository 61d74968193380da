# Our own query API, /api/llmprism/v1: searches answered in one line a trace, traces with resolved links,
# links backwards, events, live numbers. Unknown parameters are refused, so that a typo is noticed.
import dataclasses
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from otel_llmprism.exporters.store.catalog import StoreCatalog
from otel_llmprism.exporters.store.reader import StoreReader
from otel_llmprism.exporters.store.stored import TraceQuery
from otel_llmprism.exporters.store.tag_match import KIND_NAMES
from otel_llmprism.semconv import step
from otel_llmprism.service.query import llmprism_json as shapes
from otel_llmprism.service.query import parameters
from otel_llmprism.service.query.answer import Answering
from otel_llmprism.service.query.errors import BadParameterError, QueryError
from otel_llmprism.service.query.live import LiveNumbers

PREFIX = "/api/llmprism/v1"
MAX_SPANS = 20_000
MAX_LINKS = 1000
MAX_EVENTS = 1000
_PLAIN = {
    *("service", "operation", "spanKind", "tag", "tags", "start", "end", "lookback"),
    *("minDuration", "maxDuration", "limit", "error", "kind", "anomalous"),
}
SENTINEL_PATHS = ("engines", "engines/{id}/series", "findings", "findings/{id}")  # sentinel_routes.py
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LlmprismApi:
    """Answers in our own shapes; each method takes one request."""

    reader: StoreReader
    catalog: StoreCatalog
    live: LiveNumbers
    read_time_ns: Callable[[], int]
    with_content: bool

    def build_routes(self, places: threading.Semaphore) -> list[BaseRoute]:
        answering = Answering(shape_error, places)
        questions = {
            "": self._list_paths,
            "/services": self._list_services,
            "/traces": self._search,
            "/traces/{trace_id}": self._read_trace,
            "/spans/{trace_id}/{span_id}/back-links": self._find_back_links,
            "/events": self._list_events,
            "/live": self._read_live,
            "/metrics": self._read_metrics,
        }
        return [
            Route(PREFIX + path, answering.build_endpoint(ask), methods=["GET"])
            for path, ask in questions.items()
        ]

    def _list_paths(self, _request: Request) -> Json:
        paths = ("services", "traces", "traces/{traceId}", "spans/{traceId}/{spanId}/back-links")
        more = ("events", "live", "metrics", *SENTINEL_PATHS)
        return {"paths": [f"{PREFIX}/{path}" for path in (*paths, *more)]}

    def _list_services(self, request: Request) -> Json:
        parameters.refuse_unknown(request.query_params, set())
        services: dict[str, list[Json]] = {}
        for service, name, kind in self.catalog.list_operations():
            text = KIND_NAMES[kind] if 0 <= kind < len(KIND_NAMES) else ""
            services.setdefault(service, []).append({"name": name, "kind": text})
        return {"services": [{"name": name, "operations": found} for name, found in services.items()]}

    def _search(self, request: Request) -> Json:
        parameters.refuse_unknown(request.query_params, _PLAIN)
        found = self.reader.find_traces(self._read_query(request))
        summaries = self.reader.summarise_traces(found.trace_ids)
        return {"traces": [shapes.to_summary(one) for one in summaries], "isPartial": found.is_partial}

    def _read_query(self, request: Request) -> TraceQuery:
        params = request.query_params
        query = parameters.read_trace_query(
            params,
            self.read_time_ns(),
            default_limit=parameters.DEFAULT_TRACES,
            with_content=self.with_content,
        )
        tags = dict(query.tags)
        kind, anomalous = parameters.read_text(params, "kind"), _read_flag(request, "anomalous")
        if kind is not None:
            tags[step.STEP_KIND] = kind
        if anomalous is not None:
            tags[step.STEP_ANOMALOUS] = "true" if anomalous else "false"
        return dataclasses.replace(query, tags=tags, has_error=_read_flag(request, "error"))

    def _read_trace(self, request: Request) -> Json:
        parameters.refuse_unknown(request.query_params, set())
        trace_id = parameters.read_id("trace_id", str(request.path_params["trace_id"]), 16)
        traces = self.reader.read_traces([trace_id], MAX_SPANS)
        if not traces:
            raise QueryError(404, "trace not found", "it may be forgotten already, or not have arrived yet")
        targets = ((link.trace_id, link.span_id) for span in traces[0].spans for link in span.detail.links)
        return shapes.to_trace(traces[0], self.reader.read_names(targets))

    def _find_back_links(self, request: Request) -> Json:
        parameters.refuse_unknown(request.query_params, {"limit"})
        trace_id = parameters.read_id("trace_id", str(request.path_params["trace_id"]), 16)
        span_id = parameters.read_id("span_id", str(request.path_params["span_id"]), 8)
        limit = parameters.read_count(request.query_params, "limit", 100, MAX_LINKS)
        found = self.reader.find_back_links((trace_id, span_id), limit)
        return {"links": [shapes.to_back_link(back) for back in found]}

    def _list_events(self, request: Request) -> Json:
        parameters.refuse_unknown(request.query_params, {"limit"})
        limit = parameters.read_count(request.query_params, "limit", 100, MAX_EVENTS)
        return {"events": [shapes.to_event(event) for event in self.catalog.list_events(limit)]}

    def _read_live(self, request: Request) -> Json:
        parameters.refuse_unknown(request.query_params, set())
        return self.live.read_numbers()

    def _read_metrics(self, request: Request) -> Json:
        parameters.refuse_unknown(request.query_params, set())
        return {"metrics": self.live.read_metrics()}


def shape_error(status: int, message: str, hint: str) -> Json:
    """Return an error as our page reads it."""
    return {"error": {"status": status, "message": message, "hint": hint}}


def _read_flag(request: Request, name: str) -> bool | None:
    text = parameters.read_text(request.query_params, name)
    if text not in {None, "true", "false"}:
        raise BadParameterError(name, "neither true nor false", "send true or false")
    return None if text is None else text == "true"
