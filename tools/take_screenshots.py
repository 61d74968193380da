# Pictures for the docs, out of a demo's own data: one request and one step as the page shows them. Needs
# Debian's chromium and a folder that `otel-llmprism demo --data DIR` filled.
#   .venv/bin/python tools/take_screenshots.py DIR/data docs/images
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
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
)
START_S = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="the demo's store")
    parser.add_argument("out", type=Path, help="where the pictures go")
    parser.add_argument("--prefix", default="", help="of the pictures' names")
    options = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.stderr.write("take_screenshots needs Debian's chromium: apt-get install chromium\n")
        return 1
    with serve(options.data) as address, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        page = browser.new_page(viewport={"width": 1280, "height": 720})
        chosen = {
            "request": choose_trace(address, "llmprism.request", rate_request),
            "step": choose_trace(address, "llmprism.step", rate_step),
        }
        for name, (trace, wanted) in chosen.items():
            take(page, f"{address}/trace/{trace}", wanted, options.out / f"{options.prefix}{name}.png")
        browser.close()
    return 0


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


def choose_trace(address: str, operation: str, rate: Callable[[list[Any]], float]) -> tuple[str, str]:
    """Return the trace that shows most, and the name of the span to open in it."""
    found = ask(f"{address}/api/llmprism/v1/traces?operation={operation}&limit=50")["traces"]
    traces = [ask(f"{address}/api/traces/{one['traceId']}")["data"][0] for one in found]
    best = max(traces, key=lambda trace: rate(trace["spans"]))
    return best["traceID"], "llmprism.request.decode" if operation == "llmprism.request" else operation


def rate_request(spans: list[Any]) -> float:
    return sum(len(span["references"]) for span in spans if span["operationName"].endswith("decode"))


def rate_step(spans: list[Any]) -> float:
    links = max(len(span["references"]) for span in spans)
    return len(spans) + links / 1000 if links <= 12 else 0


def take(page: Page, url: str, span: str, path: Path) -> None:
    """Open the trace, show one span's details, and write the picture."""
    page.goto(url)
    page.get_by_text(span, exact=True).first.click()
    page.wait_for_load_state("networkidle")
    page.screenshot(path=path)
    sys.stderr.write(f"{path}\n")


def ask(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - our own loopback address
        found: dict[str, Any] = json.load(answer)
    return found


if __name__ == "__main__":
    sys.exit(main())
