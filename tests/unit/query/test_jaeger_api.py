# The shapes that Jaeger's page and Grafana's Jaeger data source read.
from collections.abc import Callable
from typing import Any

import pytest

Check = Callable[[str, Any], None]
REQUEST = b"R" * 16
STEP = b"S" * 16
EMPTY = {"total": 0, "limit": 0, "offset": 0, "errors": None}


def test_services(client: Any) -> None:
    answer = client.get("/api/services")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json == {**EMPTY, "data": ["engine", "front"], "total": 2}


def test_operations_in_both_forms(client: Any) -> None:
    names = client.get("/api/services/front/operations").json
    assert names == {**EMPTY, "data": ["decode", "llmprism.request"], "total": 2}
    kinds = client.get("/api/operations", "service=front").json["data"]
    assert kinds == [
        {"name": "decode", "spanKind": "internal"},
        {"name": "llmprism.request", "spanKind": "server"},
    ]
    assert client.get("/api/operations", "service=front&spanKind=server").json["total"] == 1
    assert client.get("/api/services/nobody/operations").json == {**EMPTY, "data": []}


@pytest.mark.parametrize(("name", "trace_id"), [("request", REQUEST), ("step", STEP)])
def test_a_trace_has_jaegers_shape(client: Any, check_golden: Check, name: str, trace_id: bytes) -> None:
    answer = client.get(f"/api/traces/{trace_id.hex()}")
    assert answer.status == 200
    check_golden(f"jaeger_{name}", answer.json)


def test_a_search_gives_whole_traces(client: Any) -> None:
    window = "start=1700000000000000&end=1700000001000000"
    found = client.get("/api/traces", f"service=front&operation=decode&limit=20&{window}").json
    assert [trace["traceID"] for trace in found["data"]] == [REQUEST.hex()]
    assert len(found["data"][0]["spans"]) == 3
    assert len(found["data"][0]["processes"]) == 2
    assert {key: found[key] for key in EMPTY} == EMPTY


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ('service=engine&tags={"llmprism.step.kind":"decode"}', 1),
        ('service=engine&tags={"llmprism.step.kind":"prefill"}', 0),
        ("service=engine&tag=llmprism.step.anomalous:false", 1),
        ('service=front&tags={"error":"true"}', 1),
        ("service=front&minDuration=1.9ms", 1),
        ("service=front&minDuration=3ms", 0),
        ("service=front&maxDuration=1ms", 1),
        ("service=front&lookback=1h", 1),
        ("service=front&lookback=1s", 0),
        ("service=front&lookback=custom&start=1700000000000000", 1),
        ("service=nobody", 0),
        ("service=front&unknown=ignored&prettyPrint=true", 1),
    ],
)
def test_a_search_keeps_to_its_conditions(client: Any, query: str, count: int) -> None:
    assert len(client.get("/api/traces", query).json["data"]) == count


def test_traces_by_id_say_which_are_missing(client: Any) -> None:
    found = client.get("/api/traces", f"traceID={REQUEST.hex()}&traceID=abc").json
    assert [trace["traceID"] for trace in found["data"]] == [REQUEST.hex()]
    assert found["errors"] == [{"msg": "trace not found", "traceID": "abc".zfill(32)}]


def test_calls_between_services(client: Any) -> None:
    answer = client.get("/api/dependencies", "endTs=1700000100000&lookback=604800000").json
    assert answer == {**EMPTY, "data": [{"parent": "front", "child": "engine", "callCount": 1}]}
    assert client.get("/api/dependencies", "endTs=1000&lookback=1000").json["data"] == []


@pytest.mark.parametrize(
    ("path", "query", "status", "says"),
    [
        ("/api/traces/zz", "", 400, "hexadecimal"),
        (f"/api/traces/{'f' * 33}", "", 400, "hexadecimal"),
        (f"/api/traces/{'f' * 32}", "", 404, "trace not found"),
        ("/api/traces", "", 400, "'service': missing"),
        ("/api/operations", "", 400, "'service': missing"),
        ("/api/traces", "service=a&limit=0", 400, "1 to 1500"),
        ("/api/traces", "service=a&limit=1501", 400, "1 to 1500"),
        ("/api/traces", "service=a&limit=ten", 400, "1 to 1500"),
        ("/api/traces", "service=a&start=yesterday", 400, "microseconds"),
        ("/api/traces", "service=a&end=-5", 400, "microseconds"),
        ("/api/traces", "service=a&minDuration=5", 400, "1.5s"),
        ("/api/traces", "service=a&minDuration=2s&maxDuration=1s", 400, "below minDuration"),
        ("/api/traces", "service=a&tags=[1]", 400, "JSON object"),
        ("/api/traces", "service=a&tags={", 400, "JSON object"),
        ("/api/traces", 'service=a&tags={"a":1}', 400, "JSON object"),
        ("/api/traces", "service=a&tag=novalue", 400, "tag=llmprism"),
        ("/api/traces", f"service={'a' * 2000}", 400, "at most 1024"),
        ("/api/traces", "service=a&" + "&".join(f"tag=k{n}:v" for n in range(17)), 400, "at most 16"),
        ("/api/traces", "service=a&tag=gen_ai.prompt:secret", 400, "index_content"),
        ("/api/dependencies", "endTs=soon", 400, "milliseconds"),
    ],
)
def test_bad_questions_are_refused_with_the_mend(
    client: Any, path: str, query: str, status: int, says: str
) -> None:
    answer = client.get(path, query)
    assert answer.status == status
    body = answer.json
    assert body["data"] is None
    assert body["errors"][0]["code"] == status
    assert says in body["errors"][0]["msg"]


def test_other_methods_and_paths_are_refused_as_json(client: Any) -> None:
    assert client.get("/api/services", method="POST").status == 405
    answer = client.get("/api/nothing")
    assert answer.status == 404
    assert answer.json["error"]["hint"] == "/api/llmprism/v1 lists what there is"
