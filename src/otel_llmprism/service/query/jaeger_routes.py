# The routes that Jaeger's page and Grafana's Jaeger data source call, over the store's readers.
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.routing import BaseRoute, Route

from otel_llmprism.exporters.store.catalog import StoreCatalog
from otel_llmprism.exporters.store.reader import StoreReader
from otel_llmprism.exporters.store.tag_match import KIND_NAMES
from otel_llmprism.service.query import parameters
from otel_llmprism.service.query.answer import Answering
from otel_llmprism.service.query.errors import BadParameterError, QueryError
from otel_llmprism.service.query.jaeger_json import Json, to_jaeger_trace, wrap

MAX_SPANS = 20_000  # in one answer
_DAY_NS = 86400 * 10**9
_MS = 10**6


@dataclass(frozen=True, slots=True)
class JaegerApi:
    """Answers in Jaeger's shapes; each method takes one request."""

    reader: StoreReader
    catalog: StoreCatalog
    read_time_ns: Callable[[], int]
    with_content: bool

    def build_routes(self, places: threading.Semaphore) -> list[BaseRoute]:
        answering = Answering(shape_error, places)
        questions = {
            "/api/services": self._list_services,
            "/api/services/{service:path}/operations": self._list_operation_names,
            "/api/operations": self._list_operations,
            "/api/traces": self._search,
            "/api/traces/{trace_id}": self._read_trace,
            "/api/dependencies": self._list_dependencies,
        }
        return [
            Route(path, answering.build_endpoint(ask), methods=["GET"]) for path, ask in questions.items()
        ]

    def _list_services(self, _request: Request) -> Json:
        names = sorted({service for service, _, _ in self.catalog.list_operations()})
        return wrap(names, total=len(names))

    def _list_operation_names(self, request: Request) -> Json:
        found = self.catalog.list_operations(str(request.path_params["service"]))
        names = sorted({name for _, name, _ in found})
        return wrap(names, total=len(names))

    def _list_operations(self, request: Request) -> Json:
        service = parameters.read_text(request.query_params, "service")
        if service is None:
            raise BadParameterError("service", "missing", "name a service, as /api/services lists them")
        kind = parameters.read_kind(request.query_params, "spanKind")
        data = [
            {"name": name, "spanKind": KIND_NAMES[own] if 0 <= own < len(KIND_NAMES) else ""}
            for _, name, own in self.catalog.list_operations(service)
            if kind in {None, own}
        ]
        return wrap(data, total=len(data))

    def _search(self, request: Request) -> Json:
        asked = parameters.read_trace_ids(request.query_params.getlist("traceID"))
        if asked:
            return self._read_many(asked)
        query = parameters.read_trace_query(
            request.query_params,
            self.read_time_ns(),
            default_limit=parameters.JAEGER_DEFAULT_TRACES,
            with_content=self.with_content,
        )
        if query.service is None:
            raise BadParameterError("service", "missing", "name a service, as /api/services lists them")
        found = self.reader.find_traces(query)
        traces = self.reader.read_traces(found.trace_ids, MAX_SPANS)
        errors = []
        if found.is_partial:
            errors.append({"code": 206, "msg": "the search took too long; these are the newest it found"})
        if len(traces) < len(found.trace_ids):
            errors.append({"code": 206, "msg": f"more than {MAX_SPANS} spans; the older traces are left out"})
        return wrap([to_jaeger_trace(trace) for trace in traces], errors=errors)

    def _read_many(self, trace_ids: list[bytes]) -> Json:
        traces = self.reader.read_traces(trace_ids, MAX_SPANS)
        known = {trace.trace_id for trace in traces}
        missing = [{"msg": "trace not found", "traceID": one.hex()} for one in trace_ids if one not in known]
        return wrap([to_jaeger_trace(trace) for trace in traces], errors=missing)

    def _read_trace(self, request: Request) -> Json:
        trace_id = parameters.read_id("traceID", str(request.path_params["trace_id"]), 16)
        traces = self.reader.read_traces([trace_id], MAX_SPANS)
        if not traces:
            raise QueryError(404, "trace not found", "it may be forgotten already, or not have arrived yet")
        return wrap([to_jaeger_trace(traces[0])])

    def _list_dependencies(self, request: Request) -> Json:
        params = request.query_params
        end_ns = parameters.read_time_ns(params, "endTs", self.read_time_ns(), _MS)
        lookback_ns = parameters.read_time_ns(params, "lookback", _DAY_NS, _MS)
        calls = self.catalog.count_calls(max(0, end_ns - lookback_ns), end_ns)
        service = parameters.read_text(params, "service")
        return wrap(
            [
                {"parent": caller, "child": called, "callCount": count}
                for caller, called, count in calls
                if service in {None, caller, called}
            ]
        )


def shape_error(status: int, message: str, hint: str) -> Any:
    """Return an error as Jaeger's clients expect it."""
    return wrap(None, errors=[{"code": status, "msg": f"{message}; {hint}"}])
