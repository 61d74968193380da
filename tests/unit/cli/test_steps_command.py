# A ledger folder as an exporter leaves it, read back through the command itself.
import json
import re
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_llmprism.cli.main import main
from otel_llmprism.exporters.ledger_chunks import encode_chunk
from otel_llmprism.exporters.ledger_files import LedgerFiles, LedgerFilesConfig
from otel_llmprism.exporters.otlp_logs import LedgerRecord
from otel_llmprism.model.ids import derive_span_id, derive_step_trace_id
from otel_llmprism.native import ring_records as records
from otel_llmprism.native.ledger_frames import SegmentOwner
from otel_llmprism.native.ledger_layout import ChunkAnchor
from otel_llmprism.native.ring import RunningSet
from otel_llmprism.native.ring_records import Finish, RequestEvent, StepKind, derive_request_handle
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ring import RingAssembler, RingAssemblerConfig

RUN, OTHER_RUN = "ab" * 16, "cd" * 16
SHIFT_NS = 1_767_225_600_000_000_000  # 2026-01-01T00:00:00Z at monotonic 0
MS = 1_000_000


def keep_run(folder: Path, run: str, engine: str = "engine") -> None:
    """One request with a prompt of 8 tokens and 5 more steps, in chunks of 2 steps, a segment each."""
    requests = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    owner = SegmentOwner(engine, run, "node", {"service.name": "chat"}, requests)
    running: RunningSet[str] = RunningSet(derive_request_handle)
    assembler = RingAssembler(Counters(), RingAssemblerConfig(expected_ranks=1))
    handle = derive_request_handle("chat-1-ab")
    slots = records.pack_request_arrived(
        handle, 5 * MS, b"T" * 16, b"S" * 8, b"P" * 8, "chat-1-ab", "chat-1", sampled=True
    )
    slots += records.pack_request_event(handle, 10 * MS, RequestEvent.SCHEDULED, 0)
    slots += records.pack_request_event(handle, 18 * MS, RequestEvent.FIRST_TOKEN, 0)
    for step in range(6):
        start = (10 + 10 * step) * MS
        tokens, prefill = ({"chat-1-ab": 8}, ("chat-1-ab",)) if step == 0 else ({"chat-1-ab": 1}, ())
        kind = StepKind.DECODE if step else StepKind.PREFILL
        members = running.diff(tokens, prefill)
        counts = (1, 8, 0) if step == 0 else (1, 0, 1)
        slots += records.pack_step_scheduled(
            step, start, start + MS, kind, 0, 0.5, *counts, 8 + step, 0, 1, 0, 0, 1, 1, members
        )
        slots += records.pack_step_rank(step, 0, start + MS, start + 7 * MS)
        slots += records.pack_step_output(step, start + (9 if step == 3 else 8) * MS, 5 * MS, MS, MS)
        if step == 5:
            slots += records.pack_request_ended(handle, 70 * MS, 8, 6, 0, 6, 0, Finish.STOP)
        if step % 2:
            assembler.consume(slots)
            slots = b""
            tables = assembler.take(0)
            assert tables is not None
            body = encode_chunk(tables, ChunkAnchor(step - 1, step, start, start + SHIFT_NS))
            files = LedgerFiles(LedgerFilesConfig(folder, 1 << 20), owner, Counters())
            record = LedgerRecord(
                "llmprism.ledger", body, 0, "node", step // 2, start + 9 * MS + SHIFT_NS, step - 1, step
            )
            assert files.append(record)
            files.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    keep_run(tmp_path / "ledger", RUN)
    return tmp_path / "ledger"


def run_command(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    status = main(["steps", *map(str, words)])
    out, err = capsys.readouterr()
    return status, out, err


def test_steps_are_exported_with_the_columns_of_step_records(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run_command(capsys, folder, "--format", "csv")
    lines = out.splitlines()
    assert (status, err) == (0, "")
    assert lines[0].startswith(
        "start_ns,duration_ns,engine,kind,requests,prefill_tokens,decode_tokens,kv_tokens,instance,step"
    )
    assert lines[1].startswith(f"{SHIFT_NS + 10 * MS},{8 * MS},engine,prefill,1,8,0,8,engine,0")
    assert len(lines) == 7


def test_json_lines_carry_the_same_and_go_to_a_file(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out_file = tmp_path / "steps.jsonl"
    status, out, _ = run_command(capsys, folder, "--format", "jsonl", "--out", out_file)
    assert (status, out) == (0, "")
    steps = [json.loads(line) for line in out_file.read_text().splitlines()]
    assert [step["duration_ns"] // MS for step in steps] == [8, 8, 8, 9, 8, 8]
    assert [step["gap_ns"] // MS for step in steps] == [0, 2, 2, 2, 1, 2]


@pytest.mark.parametrize(
    ("words", "steps"),
    [
        (["--from", "2", "--to", "4"], [2, 3, 4]),
        (["--kind", "prefill"], [0]),
        (["--from", "2026-01-01T00:00:00.045Z"], [4, 5]),
        (["--to", "2026-01-01T00:00:00.031Z"], [0, 1, 2]),
        (["--run", "ab", "--engine", "engine", "--from", "5"], [5]),
    ],
)
def test_bounds_select_steps(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], steps: list[int]
) -> None:
    _, out, _ = run_command(capsys, folder, "--format", "jsonl", *words)
    assert [json.loads(line)["step"] for line in out.splitlines()] == steps


def test_nothing_that_fits_is_said_and_fails(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run_command(capsys, folder, "--engine", "nobody")
    assert status == 1
    assert "no ledger kept here has such steps" in err


def test_runs_are_listed_with_their_engine(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep_run(folder, OTHER_RUN, "second")
    _, out, _ = run_command(capsys, folder, "--runs")
    lines = [line.split() for line in out.splitlines()]
    assert [(line[0], line[1], line[-1]) for line in lines[1:]] == [
        (RUN, "3", "engine"),
        (OTHER_RUN, "3", "second"),
    ]


def test_step_of_the_past_becomes_the_trace_it_would_have_been(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = run_command(capsys, folder, "--as-trace", "4")
    (resource_spans,) = json.loads(out)["resourceSpans"]
    root, rank = resource_spans["scopeSpans"][0]["spans"]
    trace_id = derive_step_trace_id("engine", bytes.fromhex(RUN), 4)
    assert status == 0
    assert root["traceId"] == rank["traceId"] == trace_id.hex()
    assert root["spanId"] == rank["parentSpanId"] == derive_span_id(trace_id, "llmprism.step").hex()
    assert int(root["startTimeUnixNano"]) == SHIFT_NS + 50 * MS
    (link,) = root["links"]
    assert (link["traceId"], link["spanId"]) == (b"T".hex() * 16, b"S".hex() * 8)
    assert {"key": "llmprism.request.tokens", "value": {"intValue": "1"}} in link["attributes"]


def test_request_of_the_past_is_found_by_either_id_and_links_to_its_steps(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    by_own = run_command(capsys, folder, "--as-trace", "chat-1-ab")[1]
    assert run_command(capsys, folder, "--as-trace", "chat-1")[1] == by_own
    spans = json.loads(by_own)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    by_name = {span["name"]: span for span in spans}
    request, decode = by_name["llmprism.request"], by_name["llmprism.request.decode"]
    assert (request["traceId"], request["parentSpanId"]) == (b"T".hex() * 16, b"P".hex() * 8)
    assert int(request["endTimeUnixNano"]) - int(request["startTimeUnixNano"]) == 65 * MS
    run = bytes.fromhex(RUN)
    assert [link["traceId"] for link in decode["links"]] == [
        derive_step_trace_id("engine", run, step).hex() for step in range(6)
    ]
    assert sum(span["name"] == "llmprism.step" for span in spans) == 6


def test_trace_is_sent_to_an_endpoint(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bodies: list[bytes] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Receiver) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        status, out, err = run_command(capsys, folder, "--as-trace", "0", "--export", endpoint)
        server.shutdown()
        thread.join()
    assert (status, out) == (0, "")
    assert f"2 spans sent to {endpoint}" in err
    request = ExportTraceServiceRequest()
    request.ParseFromString(bodies[0])
    assert request.resource_spans[0].resource.attributes[0].value.string_value == "chat"


def test_lost_segment_costs_its_own_steps_only(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sorted(folder.iterdir())[1].unlink()
    _, out, _ = run_command(capsys, folder, "--format", "jsonl")
    assert [json.loads(line)["step"] for line in out.splitlines()] == [0, 1, 4, 5]
    _, out, _ = run_command(capsys, folder, "--as-trace", "5")
    root = json.loads(out)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    assert root["links"][0]["spanId"] == b"S".hex() * 8


def test_damaged_segment_is_named_and_the_others_are_read(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = sorted(folder.iterdir())[1]
    raw = bytearray(path.read_bytes())
    raw[-20] ^= 1
    path.write_bytes(raw)
    status, out, err = run_command(capsys, folder, "--format", "jsonl")
    assert status == 0
    assert [json.loads(line)["step"] for line in out.splitlines()] == [0, 1, 4, 5]
    assert path.name in err
    assert "torn or damaged" in err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--from", "yesterday"], "--from yesterday: a step number or a time"),
        (["--export", "http://127.0.0.1:1"], "--as-trace STEP"),
        (["--as-trace", "1", "--run", "ff"], "no ledger in .* fits"),
        (["--as-trace", "77"], "has no step or request 77"),
    ],
)
def test_bad_use_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], why: str
) -> None:
    status, _, err = run_command(capsys, folder, *words)
    assert status in {1, 2}
    assert err.count("\n") == 1
    assert re.search(why, err)


def test_several_runs_ask_which(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep_run(folder, OTHER_RUN)
    status, _, err = run_command(capsys, folder, "--as-trace", "1")
    assert status == 2
    assert "2 runs fit, say which with --run" in err
    assert run_command(capsys, folder, "--as-trace", "1", "--run", "cd")[0] == 0


def test_times_without_zone_are_local(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    local = datetime.fromtimestamp(SHIFT_NS / 1e9 + 0.045, UTC).astimezone().replace(tzinfo=None)
    _, out, _ = run_command(capsys, folder, "--format", "jsonl", "--from", local.isoformat())
    assert [json.loads(line)["step"] for line in out.splitlines()] == [4, 5]
