# Our own query API: what the page shows.
from collections.abc import Callable
from typing import Any

import pytest

from otel_llmprism.pipeline.counters import Counters

BASE = "/api/llmprism/v1"
Check = Callable[[str, Any], None]
REQUEST, STEP = (b"R" * 16).hex(), (b"S" * 16).hex()


def test_a_search_answers_with_one_line_a_trace(client: Any) -> None:
    body = client.get(f"{BASE}/traces").json
    assert [trace["traceId"] for trace in body["traces"]] == [REQUEST, STEP]
    assert body["isPartial"] is False
    first = body["traces"][0]
    assert first["root"]["name"] == "llmprism.request"
    assert (first["spanCount"], first["errorCount"], first["services"]) == (3, 1, ["engine", "front"])
    assert first["startNs"] == "1700000000000001500"
    assert first["durationNs"] == 1_998_500


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("kind=decode", [STEP]),
        ("kind=prefill", []),
        ("anomalous=false", [STEP]),
        ("anomalous=true", []),
        ("error=true", [REQUEST]),
        ("error=false&service=engine&operation=llmprism.step", [STEP]),
        ("spanKind=server", [REQUEST]),
        ("operation=llmprism.step", [STEP]),
        ("tag=gen_ai.request.model:tiny", [REQUEST]),
        ("limit=1", [REQUEST]),
    ],
)
def test_our_filters(client: Any, query: str, expected: list[str]) -> None:
    found = client.get(f"{BASE}/traces", query).json["traces"]
    assert [trace["traceId"] for trace in found] == expected


@pytest.mark.parametrize(("name", "trace_id"), [("request", REQUEST), ("step", STEP)])
def test_a_trace_carries_everything_of_its_spans(
    client: Any, check_golden: Check, name: str, trace_id: str
) -> None:
    body = client.get(f"{BASE}/traces/{trace_id}").json
    check_golden(f"llmprism_{name}", body)


def test_links_are_followed_both_ways(client: Any) -> None:
    (span,) = client.get(f"{BASE}/traces/{STEP}").json["spans"]
    known, unknown = span["links"]
    assert known["target"]["name"] == "llmprism.request"
    assert unknown["target"] is None
    back = client.get(f"{BASE}/spans/{known['traceId']}/{known['spanId']}/back-links").json["links"]
    assert [(link["traceId"], link["name"], link["attributes"]) for link in back] == [
        (STEP, "llmprism.step", {"llmprism.request.tokens": 3})
    ]


def test_services_come_with_their_operations(client: Any) -> None:
    services = client.get(f"{BASE}/services").json["services"]
    assert [service["name"] for service in services] == ["engine", "front"]
    assert {"name": "llmprism.request", "kind": "server"} in services[1]["operations"]


def test_live_numbers_tell_rates_sizes_and_losses(
    client: Any, counters: Counters, monotonic_ns: list[int]
) -> None:
    counters.add("llmprism.store.spans", 100)
    counters.add("llmprism.lost", 3, stage="store", cause="disk_full")
    monotonic_ns[0] = 2 * 10**9
    body = client.get(f"{BASE}/live").json
    assert body["spansPerSecond"] == 50
    assert body["storedSpans"] == 4
    assert body["lost"] == [{"stage": "store", "cause": "disk_full", "count": 3}]
    monotonic_ns[0] = 60 * 10**9
    client.get(f"{BASE}/live")
    monotonic_ns[0] = 61 * 10**9
    assert client.get(f"{BASE}/live").json["spansPerSecond"] == 0


def test_paths_are_listed(client: Any) -> None:
    assert f"{BASE}/live" in client.get(BASE).json["paths"]
    assert client.get("/").json["api"][0] == BASE
    assert client.get(f"{BASE}/metrics").json == {"metrics": []}
    assert client.get(f"{BASE}/events").json == {"events": []}


@pytest.mark.parametrize(
    ("path", "query", "status", "hint"),
    [
        ("/traces", "servce=a", 400, "did you mean 'service'?"),
        ("/traces", "error=maybe", 400, "send true or false"),
        ("/traces", "spanKind=big", 400, "send one of internal"),
        ("/traces/abc", "", 404, "it may be forgotten already, or not have arrived yet"),
        ("/traces/abc", "x=1", 400, "known here: none"),
        ("/spans/abc/nothex/back-links", "", 400, "send up to 16 hexadecimal digits"),
        ("/spans/abc/abc/back-links", "limit=5000", 400, "send a whole number from 1 to 1000"),
    ],
)
def test_bad_questions_name_the_mend(client: Any, path: str, query: str, status: int, hint: str) -> None:
    answer = client.get(BASE + path, query)
    assert answer.status == status
    assert answer.json["error"]["hint"].startswith(hint)
