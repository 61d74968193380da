# The sentinel's part of our own query API, over a sentinel that makes its answers up.
import json
from dataclasses import replace
from typing import Any

import pytest

from otel_llmprism.model.findings import Evidence, StepRef
from otel_llmprism.model.ids import derive_span_id, derive_step_trace_id
from otel_llmprism.service.query.guard import Guard
from otel_llmprism.service.query.sentinel_view import NoSentinel
from otel_llmprism.testing.sentinel_fake import FakeSentinel
from otel_llmprism.testing.sentinel_fake_findings import (
    CLOSED_FINDING,
    OPEN_FINDING,
    REOPENED_FINDING,
    FakeIncident,
)
from otel_llmprism.testing.sentinel_fake_fleet import ALARMED, LEARNING, QUIET, RUN

BASE = "/api/llmprism/v1"
NOW_NS = 1_700_000_100 * 10**9


def test_engines_say_what_they_learned_or_how_far_they_are(client: Any) -> None:
    engines = {one["id"]: one for one in client.get(f"{BASE}/engines").json["engines"]}
    assert [engines[name]["state"] for name in (ALARMED, QUIET, LEARNING)] == [
        "alarm",
        "watching",
        "learning",
    ]
    assert engines[LEARNING]["model"]["trained_steps"] == 412
    assert engines[LEARNING]["model"]["error"] is None
    assert set(engines[ALARMED]) == {
        *("id", "run", "name", "job", "state", "model", "steps", "findings_open", "last_seen_ns")
    }


def test_a_series_holds_the_blocks_of_the_seconds_asked_for(client: Any) -> None:
    body = client.get(f"{BASE}/engines/{ALARMED}/series", "seconds=30").json
    times = [block["t_ns"] for block in body["blocks"]]
    assert (min(times), max(times)) == (NOW_NS - 30 * 10**9, NOW_NS - 10**9)
    assert (body["engine"], body["end_ns"] - body["begin_ns"]) == (ALARMED, 30 * 10**9)
    assert body["is_merged"] is False
    assert all(block["is_alarm"] and block["observed_s"] > block["upper_s"] for block in body["blocks"])


def test_a_series_of_the_past_ends_where_it_was_asked_to(client: Any) -> None:
    end_us = (NOW_NS - 600 * 10**9) // 1000
    body = client.get(f"{BASE}/engines/{ALARMED}/series", f"seconds=10&end={end_us}").json
    assert {block["is_alarm"] for block in body["blocks"]} == {False}
    assert max(block["t_ns"] for block in body["blocks"]) == NOW_NS - 601 * 10**9


def test_an_engine_whose_id_has_slashes_is_found(client: Any) -> None:
    assert client.get(f"{BASE}/engines/{QUIET}/series").json["engine"] == QUIET


def test_a_long_range_is_answered_with_fewer_wider_blocks(client: Any) -> None:
    body = client.get(f"{BASE}/engines/{ALARMED}/series", "seconds=86400").json
    assert body["is_merged"] is True
    assert 1000 < len(body["blocks"]) <= 2000


def test_blocks_before_there_is_a_model_expect_nothing(client: Any) -> None:
    blocks = client.get(f"{BASE}/engines/{LEARNING}/series").json["blocks"]
    assert blocks
    assert all(block["expected_s"] is None and block["upper_s"] is None for block in blocks)


@pytest.mark.parametrize("query", ["seconds=0", "seconds=x", "seconds=604801", "end=-1", "second=5"])
def test_a_series_refuses_what_it_does_not_understand(client: Any, query: str) -> None:
    answer = client.get(f"{BASE}/engines/{ALARMED}/series", query)
    assert answer.status == 400
    assert answer.json["error"]["hint"]


@pytest.mark.parametrize(
    ("path", "hint"), [("/engines/none/series", "/engines"), ("/findings/none", "/findings")]
)
def test_what_is_unknown_is_not_found(client: Any, path: str, hint: str) -> None:
    answer = client.get(BASE + path)
    assert answer.status == 404
    assert hint in answer.json["error"]["hint"]


def test_findings_come_running_first_then_by_what_they_cost(client: Any) -> None:
    body = client.get(f"{BASE}/findings").json
    assert [one["id"] for one in body["findings"]] == [OPEN_FINDING, CLOSED_FINDING, REOPENED_FINDING]
    assert (body["found"], body["active"]) == (3, 1)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("state=active", [OPEN_FINDING]),
        ("state=updated", [OPEN_FINDING]),
        ("state=open", []),
        ("state=closed", [CLOSED_FINDING, REOPENED_FINDING]),
        (f"engine={QUIET}&kind=kv_pressure", [REOPENED_FINDING]),
        ("kind=hang", []),
        ("limit=1", [OPEN_FINDING]),
    ],
)
def test_findings_are_filtered(client: Any, query: str, expected: list[str]) -> None:
    assert [one["id"] for one in client.get(f"{BASE}/findings", query).json["findings"]] == expected


@pytest.mark.parametrize("query", ["state=sleeping", "limit=1001", "engines=a"])
def test_findings_refuse_what_they_do_not_understand(client: Any, query: str) -> None:
    assert client.get(f"{BASE}/findings", query).status == 400


def test_a_finding_carries_the_words_of_the_report_and_its_states(client: Any) -> None:
    found = client.get(f"{BASE}/findings/{OPEN_FINDING}").json
    report = {"id", "kind", "subject", "score", "confidence", "start_ns", "end_ns", "affected", "evidence"}
    incident = {
        "state",
        "engine",
        "run",
        "occurrence",
        "opened_ns",
        "closed_ns",
        "excess_s",
        "lost_request_s",
    }
    assert {*report, *incident, "summary", "is_acknowledged", "silenced_until_ns"} <= set(found)
    assert found["subject"] == {"type": "host", "id": "node-1"}
    assert [state["state"] for state in found["history"]] == ["open", "updated", "updated"]
    assert found["history"][0]["lost_request_s"] < found["lost_request_s"]


def test_a_findings_steps_lead_to_their_traces(client: Any) -> None:
    steps = client.get(f"{BASE}/findings/{OPEN_FINDING}").json["steps"]
    trace_id = derive_step_trace_id(ALARMED, bytes.fromhex(RUN), 60_990)
    assert steps[0] == {
        "run": RUN,
        "step": 60_990,
        "why": "onset",
        "trace_id": trace_id.hex(),
        "span_id": derive_span_id(trace_id, "llmprism.step").hex(),
        "is_stored": False,
    }
    assert [step["why"] for step in steps[:3]] == ["onset", "worst", "affected"]
    assert len({step["step"] for step in steps}) == len(steps)


def test_numbers_that_are_none_become_null(client: Any, sentinel: FakeSentinel) -> None:
    (finding,) = (view.finding for view in sentinel.list_findings() if view.finding.id == OPEN_FINDING)
    odd = replace(
        finding,
        id="odd",
        run="no-hex",
        score=float("inf"),
        evidence=(Evidence("clock", float("nan"), 1.0, "s"),),
        steps=(StepRef("no-hex", 3, "onset"),),
    )
    sentinel.incidents.append(FakeIncident((odd,)))
    found = client.get(f"{BASE}/findings/odd").json
    assert found["score"] is None
    assert found["evidence"][0]["observed"] is None
    assert found["steps"][0]["trace_id"] is None


def test_a_person_acknowledges_silences_and_says_that_it_was_nothing(client: Any) -> None:
    path = f"{BASE}/findings/{OPEN_FINDING}"
    assert client.post(f"{path}/acknowledge").json["is_acknowledged"] is True
    silenced = client.post(f"{path}/silence", b'{"seconds": 3600}').json
    assert silenced["silenced_until_ns"] == NOW_NS + 3600 * 10**9
    assert client.post(f"{path}/silence", b'{"seconds": 0}').json["silenced_until_ns"] is None
    dismissed = client.post(f"{path}/dismiss", b"").json
    assert (dismissed["state"], dismissed["is_dismissed"]) == ("closed", True)
    assert client.get(f"{BASE}/findings").json["active"] == 0


@pytest.mark.parametrize(
    ("action", "body", "status"),
    [
        ("silence", b"{}", 400),
        ("silence", b'{"seconds": -1}', 400),
        ("silence", b'{"seconds": 2592001}', 400),
        ("silence", b'{"seconds": 60, "forever": true}', 400),
        ("silence", b"\xff", 400),
        ("acknowledge", b'{"seconds": 1}', 400),
        ("acknowledge", b" " * 5000, 413),
        ("acknowledge", None, 400),
        ("forget", b"{}", 404),
    ],
)
def test_an_order_that_is_not_understood_changes_nothing(
    client: Any, sentinel: FakeSentinel, action: str, body: bytes | None, status: int
) -> None:
    before = sentinel.list_findings()
    answer = client.post(f"{BASE}/findings/{OPEN_FINDING}/{action}", body)
    assert answer.status == status
    assert answer.json["error"]["hint"]
    assert sentinel.list_findings() == before


@pytest.mark.parametrize("action", ["acknowledge", "dismiss"])
def test_an_order_for_an_unknown_finding_is_not_found(client: Any, action: str) -> None:
    assert client.post(f"{BASE}/findings/none/{action}").status == 404
    assert client.post(f"{BASE}/findings/none/silence", b'{"seconds": 5}').status == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://127.0.0.1:8317"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "evil.example"}, 403),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_only_the_page_itself_may_give_an_order(
    app: Any, connect: Any, sentinel: FakeSentinel, headers: dict[str, str], status: int
) -> None:
    answer = connect(Guard(app)).post(f"{BASE}/findings/{OPEN_FINDING}/acknowledge", **headers)
    assert answer.status == status
    changed = [view for view in sentinel.list_findings() if view.is_acknowledged]
    assert bool(changed) is (status == 200)


def test_an_order_is_never_a_get(client: Any) -> None:
    assert client.get(f"{BASE}/findings/{OPEN_FINDING}/acknowledge").status == 405


def test_a_service_without_a_sentinel_answers_with_nothing() -> None:
    nobody = NoSentinel()
    assert (list(nobody.list_engines()), list(nobody.list_findings())) == ([], [])
    assert nobody.read_series("a", 0, 1) is None
    assert nobody.read_finding("a") is None
    assert [nobody.acknowledge("a"), nobody.dismiss("a"), nobody.silence("a", 1)] == [False] * 3


def test_the_fake_answers_the_same_for_the_same_seed_and_time() -> None:
    first, second = (FakeSentinel(lambda: NOW_NS, seed=3) for _ in range(2))
    span = (NOW_NS - 60 * 10**9, NOW_NS)
    assert first.read_series(ALARMED, *span) == second.read_series(ALARMED, *span)
    assert first.read_series(ALARMED, *span) != FakeSentinel(lambda: NOW_NS, seed=4).read_series(
        ALARMED, *span
    )


def test_paths_are_listed(client: Any) -> None:
    assert f"{BASE}/engines" in json.dumps(client.get(BASE).json)
