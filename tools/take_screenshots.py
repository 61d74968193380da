# Pictures for the docs: a request, a step, an engine and a finding as the page shows them; what the page does
# not have is left out. Needs Debian's chromium, and one of: a folder that `otel-llmprism demo --data DIR`
# filled, the address of a demo that runs now (findings are best taken while their engine runs), or nothing,
# for a made-up engine and finding.
#   .venv/bin/python tools/take_screenshots.py docs/images --data DIR/data
#   .venv/bin/python tools/take_screenshots.py docs/images --address http://127.0.0.1:8317
#   .venv/bin/python tools/take_screenshots.py docs/images --made-up
import argparse
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import quote

from playwright.sync_api import Page, sync_playwright

from otel_llmprism.testing.sentinel_fake import FakeSentinel
from otel_llmprism.testing.sentinel_page import serve_page

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
)
START_S = 30.0
SETTLE_MS = 3000  # charts are drawn one after the other


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="where the pictures go")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, help="the demo's store")
    source.add_argument("--address", help="of a page that runs")
    source.add_argument("--made-up", action="store_true", help="an engine and a finding that never were")
    parser.add_argument("--prefix", default="", help="of the pictures' names")
    options = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.stderr.write("take_screenshots needs Debian's chromium: apt-get install chromium\n")
        return 1
    with open_source(options) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        page = browser.new_page(viewport={"width": 1280, "height": 720})
        for name, operation, rate in (
            ("request", "llmprism.request", rate_request),
            ("step", "llmprism.step", rate_step),
        ):
            chosen = None if options.made_up else choose_trace(address, operation, rate)
            if chosen is not None:
                take_trace(page, f"{address}/trace/{chosen[0]}", chosen[1])
                save(page, options.out / f"{options.prefix}{name}.png")
        for name, path in choose_views(address).items():
            page.goto(address + path)
            page.locator("#cycles svg.main-svg").first.wait_for()
            page.wait_for_timeout(SETTLE_MS)
            save(page, options.out / f"{options.prefix}{name}.png")
        browser.close()
    return 0


def open_source(options: argparse.Namespace) -> AbstractContextManager[str]:
    """Return what gives the page's address while it is open."""
    if options.address:
        return nullcontext(str(options.address).rstrip("/"))
    return serve(options.data) if options.data else serve_made_up()


@contextmanager
def serve_made_up() -> Iterator[str]:
    with (
        tempfile.TemporaryDirectory() as folder,
        serve_page(Path(folder), FakeSentinel(time.time_ns)) as address,
    ):
        yield address


@contextmanager
def serve(data: Path) -> Iterator[str]:
    """Run `up` on the store for as long as the block lasts."""
    words = ["up", "--data", str(data), "--ui", "127.0.0.1:0", "--otlp-grpc", "127.0.0.1:0"]
    with tempfile.NamedTemporaryFile("w+") as log:
        command = [sys.executable, "-m", "otel_llmprism", *words, "--otlp-http", "127.0.0.1:0"]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            deadline_s = time.monotonic() + START_S
            while "\nready" not in (said := Path(log.name).read_text(encoding="utf-8")):
                if time.monotonic() > deadline_s or process.poll() is not None:
                    raise RuntimeError(f"`up` did not start: {said}")
                time.sleep(0.1)
            yield re.findall(r"http://127\.0\.0\.1:\d+", said)[0]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def choose_views(address: str) -> dict[str, str]:
    """Return where the engine and the finding are that show most."""
    findings = ask(f"{address}/api/llmprism/v1/findings")["findings"]
    engines = ask(f"{address}/api/llmprism/v1/engines")["engines"]
    chosen = {}
    if engines:
        engine = max(engines, key=lambda one: (one["findings_open"], one["steps"]))
        chosen["engine"] = f"/engine?id={quote(engine['id'], safe='')}"
    if findings:
        chosen["finding"] = f"/finding/{quote(findings[0]['id'], safe='')}"
    return chosen


def choose_trace(address: str, operation: str, rate: Callable[[list[Any]], float]) -> tuple[str, str] | None:
    """Return the trace that shows most, and the name of the span to open in it; None without traces."""
    found = ask(f"{address}/api/llmprism/v1/traces?operation={operation}&limit=50")["traces"]
    traces = [ask(f"{address}/api/traces/{one['traceId']}")["data"][0] for one in found]
    if not traces:
        return None
    best = max(traces, key=lambda trace: rate(trace["spans"]))
    return best["traceID"], "llmprism.request.decode" if operation == "llmprism.request" else operation


def rate_request(spans: list[Any]) -> float:
    return sum(len(span["references"]) for span in spans if span["operationName"].endswith("decode"))


def rate_step(spans: list[Any]) -> float:
    links = max(len(span["references"]) for span in spans)
    return len(spans) + links / 1000 if links <= 12 else 0


def take_trace(page: Page, url: str, span: str) -> None:
    """Open the trace and show one span's details."""
    page.goto(url)
    page.get_by_text(span, exact=True).first.click()
    page.wait_for_load_state("networkidle")


def save(page: Page, path: Path) -> None:
    page.screenshot(path=path)
    sys.stderr.write(f"{path}\n")


def ask(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - our own loopback address
        found: dict[str, Any] = json.load(answer)
    return found


if __name__ == "__main__":
    sys.exit(main())
