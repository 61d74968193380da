# Engines and findings through the server of `up`, over a socket: paths, orders, and who may give them.
import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_llmprism.service.all_in_one.settings import TOKEN_VARIABLE
from otel_llmprism.testing.sentinel_fake import FakeSentinel
from otel_llmprism.testing.sentinel_fake_findings import OPEN_FINDING
from otel_llmprism.testing.sentinel_fake_fleet import QUIET
from otel_llmprism.testing.sentinel_page import serve_page

BASE = "/api/llmprism/v1"
ACKNOWLEDGE = f"{BASE}/findings/{OPEN_FINDING}/acknowledge"
TOKEN = "a-made-up-token-of-a-test"


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with serve_page(tmp_path, FakeSentinel(time.time_ns)) as found:
        yield found


@pytest.fixture
def closed_address(tmp_path: Path) -> Iterator[str]:
    with serve_page(tmp_path, FakeSentinel(time.time_ns), {TOKEN_VARIABLE: TOKEN}) as found:
        yield found


def ask(url: str, body: bytes | None = None, **headers: str) -> tuple[int, Any]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(url, body, sent)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_an_engine_whose_id_has_a_slash_is_found_in_either_spelling(address: str) -> None:
    for spelling in (QUIET, QUIET.replace("/", "%2F")):
        status, body = ask(f"{address}{BASE}/engines/{spelling}/series?seconds=60")
        assert status == 200
        assert body["engine"] == QUIET
        assert body["blocks"]


def test_an_order_of_the_page_itself_is_done_and_one_of_another_site_is_not(address: str) -> None:
    headers = {"content_type": "application/json"}
    assert ask(address + ACKNOWLEDGE, b"{}", **headers, origin="http://evil.example")[0] == 403
    assert ask(address + ACKNOWLEDGE, b"{}", content_type="text/plain")[0] == 415
    assert ask(f"{address}{BASE}/findings/{OPEN_FINDING}")[1]["is_acknowledged"] is False
    status, body = ask(address + ACKNOWLEDGE, b"{}", **headers, origin=address)
    assert (status, body["is_acknowledged"]) == (200, True)


def test_an_order_needs_the_token_where_there_is_one(closed_address: str) -> None:
    headers = {"content_type": "application/json"}
    assert ask(closed_address + ACKNOWLEDGE, b"{}", **headers)[0] == 401
    allowed = ask(closed_address + ACKNOWLEDGE, b"{}", **headers, authorization=f"Bearer {TOKEN}")
    assert allowed[0] == 200


def test_a_body_beyond_the_bound_is_refused(address: str) -> None:
    status, _ = ask(address + ACKNOWLEDGE, b" " * 100_000, content_type="application/json")
    assert status == 413
