# The exporter's loop over a real ring with a clock that the test turns: what a clock that is set costs, and
# whom a sample belongs to.
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_llmprism.instrumentation.keeping import StepKeeper
from otel_llmprism.instrumentation.rank_records import RankPlace, RankRecorder
from otel_llmprism.instrumentation.request_records import RequestRecorder
from otel_llmprism.instrumentation.sampling import build_sampler
from otel_llmprism.instrumentation.step_records import EngineState, StepRecorder
from otel_llmprism.model.signals import Signal
from otel_llmprism.model.steps import Anchor
from otel_llmprism.native.ledger import decode_chunks
from otel_llmprism.native.ring import RingWriter
from otel_llmprism.native.ring_records import Finish, Mode, RequestEvent
from otel_llmprism.native.run_folder import RunDescription
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ledger_tables import wrap_host_columns
from otel_llmprism.service.exporter_process.settings import ExporterSettings
from otel_llmprism.service.exporter_process.wiring import build_loop

if TYPE_CHECKING:
    from otel_llmprism.service.exporter_process.outbox import Parcel

RUN = "ab" * 16
SECOND = 1_000_000_000
NOON = 1_800_000_000 * SECOND


class Bench:
    """One engine process of rank 3 and its exporter's loop; both clocks are turned by hand."""

    def __init__(self, folder: Path) -> None:
        self.monotonic_ns, self.realtime_ns = 1000 * SECOND, NOON
        self.sent: list[Parcel] = []
        self.ring = RingWriter.create(folder / "engine.ring", slots=1024)
        self._steps = StepRecorder(self.ring, StepKeeper("e", bytes.fromhex(RUN), "all"), Mode.SENTINEL)
        self._requests = RequestRecorder(self.ring, build_sampler({}), reads_context=True)
        self._rank = RankRecorder(self.ring, RankPlace(rank=3))
        description = RunDescription("e", RUN, "", "mini", "0", "m", "chat", "all", os.getpid(), 0, ranks=1)
        self.loop = build_loop(
            folder,
            description,
            {"OTEL_LLMPRISM_LEDGER_DIR": str(folder / "kept")},
            settings=ExporterSettings(),
            counters=Counters(),
            put=self.sent.append,
            read_anchor=lambda: Anchor(self.monotonic_ns, self.realtime_ns),
        )

    def pass_time(self, seconds: float, clock_step_s: float = 0.0) -> None:
        self.monotonic_ns += round(seconds * SECOND)
        self.realtime_ns += round((seconds + clock_step_s) * SECOND)

    def serve(self, name: str) -> None:
        """Record one request of one step, a second long."""
        start_ns = self.monotonic_ns
        self._requests.record_arrival(name, start_ns)
        self._requests.record_event(name, RequestEvent.SCHEDULED, start_ns + 1000, 0)
        state = EngineState(running=1)
        ticket = self._steps.record_scheduled(
            {name: 4}, [name], state, start_ns, start_ns + 2000, joined=[name]
        )
        self._rank.record_rank(ticket.step_id, start_ns + 3000, start_ns + SECOND // 2)
        self._requests.record_event(name, RequestEvent.FIRST_TOKEN, start_ns + SECOND // 2, ticket.step_id)
        self._steps.record_output(ticket, start_ns + SECOND)
        self._steps.record_left([name])
        self._requests.record_end(name, start_ns + SECOND, Finish.STOP, prompt_tokens=4, output_tokens=2)
        self.pass_time(1)

    def list_payloads(self, signal: Signal) -> list[bytes]:
        return [parcel.payload for parcel in self.sent if parcel.signal is signal]

    def list_spans(self) -> list[Span]:
        requests = [ExportTraceServiceRequest.FromString(raw) for raw in self.list_payloads(Signal.TRACES)]
        scopes = [scope for one in requests for rs in one.resource_spans for scope in rs.scope_spans]
        return [span for scope in scopes for span in scope.spans]

    def list_points(self, name: str) -> list[Any]:
        requests = [ExportMetricsServiceRequest.FromString(raw) for raw in self.list_payloads(Signal.METRICS)]
        scopes = [scope for one in requests for rm in one.resource_metrics for scope in rm.scope_metrics]
        metrics = [metric for scope in scopes for metric in scope.metrics if metric.name == name]
        return [point for metric in metrics for point in metric.sum.data_points]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    one = Bench(tmp_path)
    yield one
    one.ring.close()
    one.loop.finish(is_engine_gone=True)


@pytest.mark.parametrize("clock_step_s", [-7200.0, -0.3, 0.0, 0.3, 7200.0])
def test_spans_stay_in_order_when_the_clock_is_set(bench: Bench, clock_step_s: float) -> None:
    for number in range(3):
        bench.serve(f"req-{number}")
        bench.loop.turn()
        bench.pass_time(3, clock_step_s)
        bench.loop.turn()
    bench.pass_time(3)
    bench.loop.turn()
    spans = {span.span_id: span for span in bench.list_spans()}
    names = [span.name for span in spans.values()]
    assert (
        names.count("llmprism.request") == names.count("llmprism.step") == names.count("llmprism.rank") == 3
    )
    for span in spans.values():
        duration_ns = span.end_time_unix_nano - span.start_time_unix_nano
        assert 0 <= duration_ns <= SECOND
        if span.name in {"llmprism.request", "llmprism.step"}:
            assert duration_ns == SECOND, "a length is what the monotonic clock says"
        if parent := spans.get(span.parent_span_id):
            assert parent.start_time_unix_nano <= span.start_time_unix_nano
            assert span.end_time_unix_nano <= parent.end_time_unix_nano


def test_sums_never_end_before_they_began_and_begin_anew_at_most_once(bench: Bench) -> None:
    starts = []
    for clock_step_s in (0.0, -3600.0, 0.0, 0.0, 3600.0):
        bench.pass_time(10, clock_step_s)
        bench.serve("req")
        bench.loop.turn()
    for point in bench.list_points("llmprism.step.tokens"):
        assert point.start_time_unix_nano <= point.time_unix_nano
        starts.append(point.start_time_unix_nano)
    assert len(set(starts)) == 2


def test_samples_of_a_process_carry_the_rank_that_its_ring_tells(bench: Bench) -> None:
    bench.serve("req-0")
    bench.loop.turn()
    bench.pass_time(2)
    bench.loop.turn()
    bench.pass_time(2)
    bench.loop.turn()
    records = [
        record
        for raw in bench.list_payloads(Signal.LOGS)
        for resource in ExportLogsServiceRequest.FromString(raw).resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
        if record.event_name == "llmprism.host"
    ]
    assert records
    tables = wrap_host_columns(decode_chunks([records[-1].body.bytes_value]).columns)
    pids, ranks = tables.series.pid.tolist(), tables.series.rank.tolist()
    assert {rank for pid, rank in zip(pids, ranks, strict=True) if pid == os.getpid()} == {3}
    assert {rank for pid, rank in zip(pids, ranks, strict=True) if pid == 0} == {(1 << 32) - 1}
