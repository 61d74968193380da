# A real engine kept busy while a test does something to it: each request must be answered whole, whatever
# happens to telemetry. Also what a test asks of such an engine: its request spans, and what it says itself.
import contextlib
import itertools
import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from otel_llmprism.testing.engine_client import Answer, Ask
from otel_llmprism.testing.engine_load import LoadPlan, build_asks
from otel_llmprism.testing.programs import wait_until

PATIENCE_S = 90.0
REQUEST = "llmprism.request"


class Case(Protocol):
    """One server's life, as the tests' fixtures give it."""

    def send(self, asks: Sequence[Ask], concurrency: int) -> list[Answer]: ...

    def list_spans(self, name: str) -> list[Any]: ...


def send_whole(case: Case, name: str) -> list[Ask]:
    """Send a load, see that all of it is answered whole, and return it; the name makes it what it is."""
    asks = build_asks(LoadPlan(24, seed=random.Random(name).getrandbits(32), max_tokens=(8, 48)), name)  # noqa: S311
    answers = case.send(asks, 12)
    wanted = [(200, "length", ask.max_tokens) for ask in asks]
    assert [(answer.status, answer.finish, answer.generated) for answer in answers] == wanted
    return asks


@contextlib.contextmanager
def keep_busy(case: Case, name: str) -> Iterator[list[Ask]]:
    """Send load after load until the block is left; gives what was sent so far."""
    asks: list[Ask] = []
    stop = threading.Event()

    def send() -> None:
        for number in itertools.count():
            asks.extend(send_whole(case, f"{name}-{number}"))
            if stop.is_set():
                return

    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send)
        try:
            yield asks
        finally:
            stop.set()
        sending.result()


def list_traces(asks: Sequence[Ask]) -> dict[str, Ask]:
    """Return the asks by the trace that each belongs to."""
    return {ask.traceparent.split("-")[1]: ask for ask in asks}


def await_requests(case: Case, asks: Sequence[Ask]) -> list[Any]:
    """Return the request spans of these asks once all came; there is one of each."""
    wanted = list_traces(asks)

    def find() -> list[Any]:
        return [span for span in case.list_spans(REQUEST) if span.trace_id.hex() in wanted]

    wait_until(
        lambda: len({span.trace_id for span in find()}) == len(wanted), "spans are missing", PATIENCE_S
    )
    spans = find()
    assert len(spans) == len(wanted), "a request came twice"
    return spans


def control(pid: int, *words: str) -> list[dict[str, Any]]:
    """Command a running engine as a person on its node does; return what each of its processes says."""
    command = [sys.executable, "-m", "otel_llmprism", "control", str(pid), *words, "--json"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert asked.returncode == 0, asked.stdout + asked.stderr
    return list(json.loads(asked.stdout)["processes"])
