# A deep-dive filed with a real processor reaches a serving engine through its exporter: exactly so many
# whole steps become traces, in either mode of the processor.
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_llmprism.testing.processor_program import ProcessorSetup
from otel_llmprism.testing.programs import Programs

LONG = ("--requests", "100000", "--closed", "4", "--output", "40", "--ranks", "2")
STEPS = 6
TOKEN = "0123456789abcdef"
DEADLINE_S = 60.0


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    with Programs(tmp_path) as started:
        yield started


def await_true(case: Any, check: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not check():
        assert time.monotonic() < deadline_s, case.log
        time.sleep(0.05)


def ask(port: int, path: str = "", body: object = None, token: str = TOKEN) -> dict[str, Any]:
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/control/requests{path}",
        data=None if body is None else json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {token}"},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return dict(json.loads(answer.read()))


def read_text(span: Span, name: str) -> str:
    return next((a.value.string_value for a in span.attributes if a.key == name), "")


def list_deep_ids(case: Any) -> list[int]:
    deep = [s for s in case.list_spans("llmprism.step") if read_text(s, "llmprism.step.kept") == "deep"]
    return sorted(a.value.int_value for s in deep for a in s.attributes if a.key == "llmprism.step.id")


@pytest.mark.parametrize("mode", ["inline", "beside"])
def test_a_filed_request_turns_exactly_its_steps_into_deep_traces(
    start_engine: Any, programs: Programs, tmp_path: Path, mode: str
) -> None:
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN, encoding="ascii")
    token_file.chmod(0o600)
    service = {"mode": mode, "control": {"token_file": str(token_file)}}
    processor = ProcessorSetup(tmp_path, "127.0.0.1:9", service=service)
    processor.start(programs).await_port(processor.health_port)
    case = start_engine(
        *LONG,
        OTEL_LLMPRISM_ENGINE_ID="mini-under-test",
        OTEL_LLMPRISM_PROCESSOR=f"http://127.0.0.1:{processor.health_port}",
        OTEL_LLMPRISM_PROCESSOR_TOKEN_FILE=str(token_file),
    )
    await_true(case, lambda: case.list_spans("llmprism.step"))
    with pytest.raises(urllib.error.HTTPError, match="401"):
        ask(processor.health_port, body={"engine": "mini-under-test"}, token="wrong")
    filed = ask(processor.health_port, body={"engine": "mini-under-test", "steps": STEPS})
    await_true(case, lambda: ask(processor.health_port, f"/{filed['id']}")["state"] == "done")
    case.process.terminate()
    case.wait_for_end()
    ids = list_deep_ids(case)
    assert ids == list(range(ids[0], ids[0] + STEPS)), "whole steps, one after the other, and no more"
    ranks = [s for s in case.list_spans("llmprism.rank") if s.start_time_unix_nano]
    steps = [s for s in case.list_spans("llmprism.step") if read_text(s, "llmprism.step.kept") == "deep"]
    for step in steps:
        assert len([r for r in ranks if r.trace_id == step.trace_id]) == 2, "both ranks of each"
    counted = {o: processor.sum_counter("llmprism_control_requests_total", outcome=o) for o in OUTCOMES}
    assert counted == {"asked": 1, "granted": 1, "done": 1, "failed": 0}


OUTCOMES = ("asked", "granted", "done", "failed")
