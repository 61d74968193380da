# A real `up` with two linked traces in it, and Debian's Chromium to look at its page.
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Request, expect, sync_playwright

from otel_llmprism.testing.sentinel_fake import FakeSentinel
from otel_llmprism.testing.sentinel_page import serve_page

REQUEST_TRACE, STEP_TRACE = "a1" * 16, "b2" * 16
REQUEST_SPAN, DECODE_SPAN, STEP_SPAN, RANK_SPAN = "01" * 8, "02" * 8, "03" * 8, "04" * 8
MARKUP = "<img src=x onerror=window.hacked=1>"
CHROMIUM_FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


# How long to wait says nothing about what is right; a crowded machine needs long.
expect.set_options(timeout=30_000)


def build_span(trace: str, span: str, parent: str, name: str, **more: Any) -> dict[str, Any]:
    now_ns = time.time_ns()
    times = {"startTimeUnixNano": str(now_ns - 10**9), "endTimeUnixNano": str(now_ns)}
    return {"traceId": trace, "spanId": span, "parentSpanId": parent, "name": name, **times, **more}


def build_request() -> dict[str, Any]:
    to_request = {"traceId": REQUEST_TRACE, "spanId": REQUEST_SPAN}
    to_step = {"traceId": STEP_TRACE, "spanId": STEP_SPAN}
    kind = {"key": "llmprism.step.kind", "value": {"stringValue": "decode"}}
    markup = {"key": "note", "value": {"stringValue": MARKUP}}
    spans = [
        build_span(REQUEST_TRACE, REQUEST_SPAN, "", "llmprism.request", kind=2, attributes=[markup]),
        build_span(REQUEST_TRACE, DECODE_SPAN, REQUEST_SPAN, "llmprism.request.decode", links=[to_step]),
        build_span(STEP_TRACE, STEP_SPAN, "", "llmprism.step", attributes=[kind], links=[to_request]),
        build_span(STEP_TRACE, RANK_SPAN, STEP_SPAN, MARKUP, status={"code": 2, "message": "late"}),
    ]
    service = {"key": "service.name", "value": {"stringValue": "mini-engine"}}
    return {"resourceSpans": [{"resource": {"attributes": [service]}, "scopeSpans": [{"spans": spans}]}]}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the page's address; the process ends with the module."""
    folder = tmp_path_factory.mktemp("up")
    with (folder / "log").open("w+", encoding="utf-8") as log:
        words = ["up", "--data", str(folder / "data"), "--ui", "127.0.0.1:0"]
        words += ["--otlp-grpc", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0"]
        process = subprocess.Popen([sys.executable, "-m", "otel_llmprism", *words], stdout=log, stderr=log)
        try:
            ports = wait_for_ports(process, folder / "log")
            send(ports["http"])
            page = f"http://127.0.0.1:{ports['page']}"
            for trace in (REQUEST_TRACE, STEP_TRACE):  # requests are held back for a moment
                wait_for_trace(page, trace)
            yield page
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def wait_for_ports(process: subprocess.Popen[bytes], log: Path) -> dict[str, int]:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and process.poll() is None:
        said = log.read_text(encoding="utf-8")
        if "\nready" in said:
            page = re.search(r"page and API  http://127.0.0.1:([0-9]+)/", said)
            http = re.search(r"OTLP HTTP     http://127.0.0.1:([0-9]+)", said)
            assert page, said
            assert http, said
            return {"page": int(page[1]), "http": int(http[1])}
        time.sleep(0.05)
    raise AssertionError(f"up did not start: {log.read_text(encoding='utf-8')}")


def send(port: int) -> None:
    body = json.dumps(build_request()).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/traces", body)
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 200


def wait_for_trace(page: str, trace: str) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            urllib.request.urlopen(f"{page}/api/llmprism/v1/traces/{trace}", timeout=5).close()
            return
        time.sleep(0.1)
    raise AssertionError("the trace did not arrive in the store")


# Not for the session: while Playwright is open, no later test can run an event loop of its own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        text = "needs Debian's chromium (apt-get install chromium)"
        if os.environ.get("CI") == "true":
            pytest.fail(text)
        pytest.skip(text)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=CHROMIUM_FLAGS)
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    """Return a fresh page of a real `up`."""
    with open_page(browser, address) as opened:
        yield opened


@pytest.fixture
def sentinel() -> FakeSentinel:
    return FakeSentinel(time.time_ns)


@pytest.fixture
def sentinel_page(browser: Browser, tmp_path: Path, sentinel: FakeSentinel) -> Iterator[Page]:
    """Return a fresh page over the fake sentinel, served by the server of `up` in this process."""
    with serve_page(tmp_path, sentinel) as address, open_page(browser, address) as opened:
        yield opened


@contextlib.contextmanager
def open_page(browser: Browser, address: str) -> Iterator[Page]:
    """Yield a page that fails the test on a script error or on a request to anywhere else."""
    context = browser.new_context(base_url=address)
    opened = context.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))

    def note_request(request: Request) -> None:
        if not request.url.startswith(address):
            problems.append(request.url)

    opened.on("request", note_request)
    yield opened
    context.close()
    assert problems == []
