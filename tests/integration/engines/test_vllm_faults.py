# Real vLLM under load while our part of it meets every misfortune: its exporter killed or stopped, its
# endpoint gone, its rings full or without room, places in vLLM not as we know them, the engine core killed.
# Whatever happens to telemetry, each request is answered whole; and what is missing is said. In order.
import os
import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from otel_llmprism.model.signals import Signal
from otel_llmprism.native.ring_layout import SLOT_BYTES
from otel_llmprism.semconv import metric
from otel_llmprism.testing.engine_busy import (
    PATIENCE_S,
    REQUEST,
    await_requests,
    control,
    keep_busy,
    list_traces,
    send_whole,
)
from otel_llmprism.testing.engine_changes import VARIABLE
from otel_llmprism.testing.engine_client import Ask
from otel_llmprism.testing.engine_load import LoadPlan, build_asks
from otel_llmprism.testing.engine_server import PLAIN, ServerShape
from otel_llmprism.testing.otlp_server import OtlpServer, Refuse, Reset
from otel_llmprism.testing.programs import wait_until
from otel_llmprism.testing.small_disk import CannotMountError, fill_disk, mount_small_disk

FAULTY = ServerShape("faulty", PLAIN.arguments, PLAIN.environment)
CROWDED = ServerShape("crowded", PLAIN.arguments, PLAIN.environment)
RING_SLOTS = 2048  # a few seconds of steps
GONE, CHANGED = "EngineCore.sleep", "Worker.execute_model"
CHANGES = f"gone=vllm.v1.engine.core:{GONE},changed=vllm.v1.worker.gpu_worker:{CHANGED}"
STATUS_ERROR = 2


@pytest.fixture(scope="module")
def faulty(engines: Any) -> Any:
    """A server that all tests but the last leave serving."""
    return engines.serve(FAULTY, {"OTEL_LLMPRISM_RING_SLOTS": str(RING_SLOTS), VARIABLE: CHANGES})


def sum_dropped(case: Any) -> int:
    return sum(process["dropped"] for process in control(case.server.program.pid, "status"))


def read_lost(case: Any, stage: str) -> dict[str, int]:
    """Return what the exporter last said that it lost at a stage, by cause."""
    last: dict[str, int] = {}
    for one in case.backend.received(Signal.METRICS):
        for resource in ExportMetricsServiceRequest.FromString(one.payload).resource_metrics:
            points = [
                point
                for scope in resource.scope_metrics
                for found in scope.metrics
                if found.name == metric.LOST
                for point in found.sum.data_points
            ]
            for point in points:
                labels = {item.key: item.value.string_value for item in point.attributes}
                if labels["stage"] == stage:
                    last[labels["cause"]] = int(point.as_double) or point.as_int
    return last


def list_zombies(parent: int) -> list[int]:
    """Return the children of a process that nobody has waited for."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] == "Z" and int(fields[1]) == parent:
            found.append(int(path.parent.name))
    return found


def find_core(case: Any) -> int:
    """Return the process that schedules: the one that keeps the token log."""
    (path,) = case.server.list_token_logs()
    return int(path.suffix.removeprefix("."))


def test_places_that_vllm_does_not_have_turn_only_their_hooks_off_and_are_said(faulty: Any) -> None:
    asks = send_whole(faulty, "changed")
    await_requests(faulty, asks)
    said = [line for line in faulty.log.splitlines() if "one hook is off" in line]
    assert len([line for line in said if f"{CHANGED} takes (anything, named)" in line]) == 1, "one worker"
    assert len([line for line in said if f"{GONE} is not there" in line]) == 2, "front end and engine core"
    assert len(said) == 3
    told = control(faulty.server.program.pid, "status")
    assert [process["absent_hooks"] for process in told] == [[f"vllm.v1.engine.core.{GONE}"]] * 2
    tables = wait_until(faulty.read_ledger, "no ledger came")
    assert sum(len(one.steps) for one in tables) > 0
    assert sum(len(one.ranks) for one in tables) == 0
    assert "Traceback" not in faulty.log


def test_a_killed_exporter_comes_back_and_no_request_notices(faulty: Any) -> None:
    (killed,) = faulty.server.list_exporters()
    with keep_busy(faulty, "killed"):
        os.kill(killed, signal.SIGKILL)
        wait_until(
            lambda: set(faulty.server.list_exporters()) - {killed}, "it does not come back", PATIENCE_S
        )
    assert len(faulty.server.list_exporters()) == 1
    assert list_zombies(faulty.server.program.pid) == []
    await_requests(faulty, send_whole(faulty, "after-killed"))


def test_what_is_recorded_while_the_endpoint_is_down_or_refuses_arrives_later(faulty: Any) -> None:
    port = faulty.backend.grpc_port
    before = faulty.log.count("does not take")
    faulty.backend.__exit__()
    with keep_busy(faulty, "down") as down:
        wait_until(lambda: faulty.log.count("does not take") > before, "the outage is not told", PATIENCE_S)
    faulty.backend = OtlpServer(grpc_port=port).__enter__()
    faulty.backend.follow(*[Refuse(), Reset()] * 4)
    with keep_busy(faulty, "refused") as refused:
        faulty.backend.wait_until_asked(8, PATIENCE_S)
    await_requests(faulty, [*down, *refused])


def test_what_the_endpoint_rejects_for_good_is_counted(faulty: Any) -> None:
    with keep_busy(faulty, "rejected"):
        faulty.backend.follow(then=Refuse(grpc.StatusCode.INVALID_ARGUMENT, 400))
        wait_until(lambda: "the endpoint rejected" in faulty.log, "it is not told", PATIENCE_S)
    faulty.backend.follow()
    wait_until(lambda: sum(read_lost(faulty, "send").values()), "it is not counted", PATIENCE_S)
    await_requests(faulty, send_whole(faulty, "after-rejected"))


def test_rings_that_overflow_are_counted_to_the_record_and_what_is_left_is_true(faulty: Any) -> None:
    (exporter,) = faulty.server.list_exporters()
    before = sum_dropped(faulty)
    os.kill(exporter, signal.SIGSTOP)
    try:
        with keep_busy(faulty, "overflow"):
            wait_until(lambda: sum_dropped(faulty) > before + 100, "nothing was dropped", PATIENCE_S)
    finally:
        os.kill(exporter, signal.SIGCONT)
    assert faulty.server.list_exporters() == [exporter], "it lives, so nobody starts another"
    dropped = sum_dropped(faulty)
    wait_until(lambda: read_lost(faulty, "ring").get("full", 0) >= dropped, "losses are not told", 30)
    assert read_lost(faulty, "ring")["full"] == dropped
    asks = send_whole(faulty, "after-overflow")
    check_tokens(await_requests(faulty, asks), asks)
    wait_until(
        lambda: read_lost(faulty, "ring").get("step_missing"), "nobody says that steps are missing", 30
    )
    check_steps(faulty)


def check_tokens(spans: Sequence[Any], asks: Sequence[Ask]) -> None:
    """Each span says how many tokens its request got."""
    told = {
        span.trace_id.hex(): item.value.int_value
        for span in spans
        for item in span.attributes
        if item.key == "gen_ai.usage.output_tokens"
    }
    assert told == {trace: ask.max_tokens for trace, ask in list_traces(asks).items()}


def check_steps(case: Any) -> None:
    """What the ledger has of a step is what was scheduled, and some steps are missing."""
    book = case.read_book().steps
    found = [
        row
        for tables in case.read_ledger()
        for row in zip(
            tables.steps.step.tolist(),
            tables.steps.requests.tolist(),
            (tables.steps.prefill_tokens.astype(int) + tables.steps.decode_tokens).tolist(),
            strict=True,
        )
    ]
    assert found
    assert len(found) == len({step for step, _, _ in found}) < len(book)
    wrong = [row for row in found if row != (row[0], len(book[row[0]]), sum(book[row[0]].values()))]
    assert wrong == []


def test_a_killed_engine_core_leaves_error_spans_and_no_process(faulty: Any) -> None:
    plan = LoadPlan(48, seed=9, max_tokens=(900, 900), prompt_words=(4, 8))  # three times as many as fit
    asks = build_asks(plan, "core")
    (book,) = faulty.server.list_token_logs()
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(faulty.send, asks, len(asks))
        wait_until(lambda: b"cmpl-core-" in book.read_bytes(), "they do not run", PATIENCE_S)
        os.kill(find_core(faulty), signal.SIGKILL)
        answers = sending.result()
    assert "length" not in {answer.finish for answer in answers}
    faulty.server.program.wait(PATIENCE_S)
    wait_until(lambda: not faulty.server.list_processes(), "processes are left", PATIENCE_S)
    assert list(faulty.server.runtime.iterdir()) == []
    begun = {
        ask.traceparent.split("-")[1] for ask, answer in zip(asks, answers, strict=True) if answer.first_ns
    }
    spans = [span for span in faulty.list_spans(REQUEST) if span.trace_id.hex() in list_traces(asks)]
    assert begun <= {span.trace_id.hex() for span in spans}
    assert {span.status.code for span in spans} == {STATUS_ERROR}


def test_vllm_without_room_for_rings_serves_and_says_once_that_we_are_off(
    engines: Any, tmp_path: Path
) -> None:
    try:
        with mount_small_disk(tmp_path / "disk", RING_SLOTS * SLOT_BYTES) as disk:
            fill_disk(disk)
            case = engines.serve(CROWDED, {"OTEL_LLMPRISM_RUNTIME_DIR": str(disk / "rings")})
            send_whole(case, "crowded")
            said = [line for line in case.log.splitlines() if "llmprism is off" in line]
            assert len(said) == 1
            assert "OTEL_LLMPRISM_RUNTIME_DIR" in said[0]
            assert case.server.list_exporters() == []
            assert "Traceback" not in case.log  # vLLM may leave one of its own when it ends
            case.finish()
            assert case.list_spans(REQUEST) == []
            assert case.read_ledger() == []
    except CannotMountError as error:
        pytest.skip(str(error))
