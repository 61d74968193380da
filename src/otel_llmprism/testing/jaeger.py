# Jaeger's own HTTP API, as its users ask it: trace ids and spans out of a running Jaeger. What comes out are
# small frozen spans; knows nothing of how they were sent.
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class JaegerSpan:
    trace_id: str
    span_id: str
    name: str
    service: str
    parent_id: str  # empty: a root
    links: tuple[tuple[str, str], ...]  # (trace id, span id) of FOLLOWS_FROM references
    tags: Mapping[str, Any]
    start_us: int
    duration_us: int


class JaegerClient:
    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"

    def find_traces(self, service: str, limit: int = 5000) -> dict[str, list[JaegerSpan]]:
        """Return the spans of every stored trace that `service` has a part in, by trace id."""
        found = self._ask("/api/traces", {"service": service, "limit": str(limit), "lookback": "1h"})
        return {trace["traceID"]: list(_read_spans(trace)) for trace in found or []}

    def read_trace(self, trace_id: str) -> list[JaegerSpan]:
        """Return the spans of one trace; none when Jaeger does not have it."""
        found = self._ask(f"/api/traces/{trace_id}", {})
        return [span for trace in found or [] for span in _read_spans(trace)]

    def _ask(self, path: str, query: Mapping[str, str]) -> Any:
        url = f"{self._base}{path}?{urlencode(query)}"
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:  # noqa: S310 - loopback
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == 404:
                return None
            raise


def _read_spans(trace: Mapping[str, Any]) -> Iterator[JaegerSpan]:
    services = {key: process["serviceName"] for key, process in trace["processes"].items()}
    for span in trace["spans"]:
        references = span.get("references") or []
        parents = [r["spanID"] for r in references if r["refType"] == "CHILD_OF"]
        yield JaegerSpan(
            trace_id=span["traceID"],
            span_id=span["spanID"],
            name=span["operationName"],
            service=services[span["processID"]],
            parent_id=parents[0] if parents else "",
            links=tuple((r["traceID"], r["spanID"]) for r in references if r["refType"] == "FOLLOWS_FROM"),
            tags={tag["key"]: tag["value"] for tag in span["tags"]},
            start_us=span["startTime"],
            duration_us=span["duration"],
        )
