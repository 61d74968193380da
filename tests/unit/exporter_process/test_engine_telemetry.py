# Records of a made-up engine through recorders, assembler and telemetry, with every clock in the test's hand.
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from otel_llmprism.exporters.otlp_metrics import HistogramReading, NumberReading
from otel_llmprism.exporters.request_spans import RequestTexts
from otel_llmprism.exporters.step_spans import StepOrigin
from otel_llmprism.instrumentation.keeping import StepKeeper
from otel_llmprism.instrumentation.rank_records import RankPlace, RankRecorder
from otel_llmprism.instrumentation.request_records import RequestRecorder
from otel_llmprism.instrumentation.sampling import build_sampler
from otel_llmprism.instrumentation.step_records import EngineState, StepRecorder
from otel_llmprism.model.ids import derive_span_id, derive_step_trace_id
from otel_llmprism.model.steps import Anchor
from otel_llmprism.native.ring_records import Finish, Mode, RequestEvent
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ring import RingAssembler
from otel_llmprism.semconv import metric as names
from otel_llmprism.service.exporter_process.byte_budget import ByteBudget
from otel_llmprism.service.exporter_process.engine_metrics import EngineMetrics
from otel_llmprism.service.exporter_process.engine_telemetry import EngineTelemetry, Outgoing
from otel_llmprism.service.exporter_process.kept_step_spans import KeptStepSpans
from otel_llmprism.service.exporter_process.metric_store import MetricStore
from otel_llmprism.service.exporter_process.request_book import HOLD_NS, RequestBook

RUN = bytes(range(16))
MS = 1_000_000
REALTIME_NS = 1_700_000_000_000_000_000
TRACE, CALLER = "ab" * 16, "cd" * 8


@dataclass
class Bench:
    """One engine, its ring as a list, and what becomes of it."""

    budget_bytes_per_s: float = 1e9
    steps_mode: str = "sample"
    records: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.counters, self.store = Counters(), MetricStore()
        self.keeper = StepKeeper("engine", RUN, self.steps_mode)
        self.steps = StepRecorder(self, self.keeper, Mode.SENTINEL)
        self.requests = RequestRecorder(self, build_sampler({}), reads_context=True)
        self.rank = RankRecorder(self, RankPlace(0))
        book = RequestBook(self.counters)
        texts = RequestTexts("chat", "vllm", "m")
        metrics = EngineMetrics(self.store, texts)
        budget = ByteBudget(self.budget_bytes_per_s, 1, 0)
        kept = KeptStepSpans(book, metrics, budget, self.counters)
        self._telemetry = EngineTelemetry(texts, metrics, book, kept)
        self._assembler = RingAssembler(self.counters)

    def put(self, record: bytes, /) -> bool:
        self.records.append(record)
        return True

    def add_hook_time(self, _duration_ns: int, /) -> None:
        pass

    def run_step(self, tokens: dict[str, int], at_ms: int, prefill: tuple[str, ...] = ()) -> int:
        start = at_ms * MS
        ticket = self.steps.record_scheduled(tokens, prefill, EngineState(), start, start + MS)
        self.rank.record_rank(ticket.step_id, start + MS, start + 8 * MS, wait_ns=2 * MS)
        self.steps.record_output(ticket, start + 9 * MS)
        return ticket.step_id

    def run_request(self, name: str, traceparent: str = "", steps: int = 3) -> None:
        """Arrive at 0, one prefill step at 10 ms, then a decode step each 10 ms."""
        self.requests.record_arrival(name, 0, traceparent)
        self.requests.record_event(name, RequestEvent.SCHEDULED, 10 * MS)
        self.run_step({name: 7}, 10, (name,))
        self.requests.record_event(name, RequestEvent.FIRST_TOKEN, 19 * MS, 0)
        for step in range(1, steps):
            self.run_step({name: 1}, 10 + 10 * step)
        self.steps.record_left([name])
        ended = (10 * steps + 9) * MS
        self.requests.record_end(name, ended, Finish.STOP, prompt_tokens=7, output_tokens=steps)

    def consume(self, now_ns: int = 10 * HOLD_NS, *, is_over: bool = False) -> list[Span]:
        slots, self.records = b"".join(self.records), []
        self._assembler.consume(slots)
        tables = self._assembler.take(now_ns, is_final=True)
        origin = StepOrigin("engine", RUN, Anchor(now_ns, REALTIME_NS + now_ns))
        outgoing: list[Outgoing] = []
        if tables is not None:
            outgoing.append(self._telemetry.consume(tables, origin))
        outgoing.append(self._telemetry.finish(origin) if is_over else self._telemetry.release(origin))
        return [span for one in outgoing for spans in one.spans.values() for span in spans]

    def read_histogram(self, name: str) -> HistogramReading:
        readings = [reading for reading in self.store.read_all() if reading.name == name]
        (reading,) = readings
        assert isinstance(reading, HistogramReading)
        return reading


def find(spans: list[Span], name: str) -> Span:
    (span,) = [span for span in spans if span.name == name]
    return span


def read_attributes(holder: Any) -> dict[str, Any]:
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in holder.attributes}


def test_request_has_the_callers_trace_its_phases_and_its_times() -> None:
    bench = Bench()
    bench.run_request("r", f"00-{TRACE}-{CALLER}-01")
    spans = bench.consume()
    request = find(spans, "llmprism.request")
    assert (request.trace_id.hex(), request.parent_span_id.hex()) == (TRACE, CALLER)
    assert request.kind == Span.SPAN_KIND_SERVER
    assert request.start_time_unix_nano == REALTIME_NS
    attributes = read_attributes(request)
    assert attributes["llmprism.request.ttft_s"] == 0.019
    assert attributes["llmprism.request.queue_s"] == 0.010
    assert attributes["llmprism.request.tpot_s"] == 0.010
    assert attributes["llmprism.request.steps"] == 3  # by the ledger: this engine tells none
    edges = [0, 10, 19, 39]
    for name, start, end in zip(("queue", "prefill", "decode"), edges, edges[1:], strict=False):
        phase = find(spans, f"llmprism.request.{name}")
        assert (phase.trace_id, phase.parent_span_id) == (request.trace_id, request.span_id)
        times = (phase.start_time_unix_nano, phase.end_time_unix_nano)
        assert times == (REALTIME_NS + start * MS, REALTIME_NS + end * MS)


def test_step_and_request_link_to_each_other() -> None:
    bench = Bench(steps_mode="all")
    bench.run_request("r", f"00-{TRACE}-{CALLER}-01")
    spans = bench.consume()
    request, decode = find(spans, "llmprism.request"), find(spans, "llmprism.request.decode")
    steps = [span for span in spans if span.name == "llmprism.step"]
    for number, step in enumerate(steps):
        (link,) = step.links
        assert (link.trace_id, link.span_id) == (request.trace_id, request.span_id)
        assert read_attributes(link) == {
            "llmprism.request.id": "r",
            "llmprism.request.tokens": 7 if number == 0 else 1,
            "llmprism.request.phase": "prefill" if number == 0 else "decode",
        }
    trace_ids = [derive_step_trace_id("engine", RUN, number) for number in range(3)]
    assert [step.trace_id for step in steps] == trace_ids
    assert [link.trace_id for link in decode.links] == trace_ids
    assert decode.links[0].span_id == derive_span_id(trace_ids[0], "llmprism.step")


def test_step_span_carries_work_times_and_why_it_was_kept() -> None:
    bench = Bench()
    bench.run_request("r", steps=2)
    first, second = [span for span in bench.consume() if span.name == "llmprism.step"]
    attributes = read_attributes(first)
    assert attributes["llmprism.step.kind"] == "prefill"
    assert (attributes["llmprism.step.prefill_tokens"], attributes["llmprism.step.decode_tokens"]) == (7, 0)
    assert (attributes["llmprism.step.kept"], attributes["llmprism.step.kept_probability"]) == ("random", 1.0)
    assert attributes["llmprism.mode"] == "sentinel"
    assert attributes["llmprism.step.cycle_s"] == 0.009
    assert read_attributes(second)["llmprism.step.kind"] == "decode"
    assert "llmprism.step.links_omitted" not in attributes
    assert "llmprism.step.device_s" not in attributes  # nobody measured it


def test_steps_beyond_the_budget_are_counted_and_nothing_points_at_them() -> None:
    bench = Bench(budget_bytes_per_s=10)
    bench.run_request("r", f"00-{TRACE}-{CALLER}-01")
    spans = bench.consume(now_ns=2 * HOLD_NS)
    assert [span for span in spans if span.name == "llmprism.step"] == []
    assert not find(spans, "llmprism.request.decode").links
    assert bench.counters.value(names.LOST, stage="step_spans", cause="byte_budget") == 6
    cycles = [r for r in bench.store.read_all() if r.name == names.STEP_CYCLE]
    assert all(isinstance(reading, HistogramReading) and not reading.exemplars for reading in cycles)


def test_all_steps_ignore_the_budget() -> None:
    bench = Bench(budget_bytes_per_s=10, steps_mode="all")
    bench.run_request("r")
    assert len([span for span in bench.consume() if span.name == "llmprism.step"]) == 3


def test_unsampled_request_gives_metrics_no_span_no_link_and_no_exemplar() -> None:
    bench = Bench()
    bench.run_request("r", f"00-{TRACE}-{CALLER}-00")
    spans = bench.consume()
    assert {span.name for span in spans} == {"llmprism.step", "llmprism.rank"}
    assert all(not span.links for span in spans)
    duration = bench.read_histogram(names.REQUEST_DURATION)
    assert sum(duration.counts) == 1
    assert not duration.exemplars


def test_exemplars_point_at_kept_traces() -> None:
    bench = Bench()
    bench.run_request("r", f"00-{TRACE}-{CALLER}-01", steps=2)
    spans = {(span.trace_id, span.span_id) for span in bench.consume()}
    readings = [r for r in bench.store.read_all() if isinstance(r, HistogramReading)]
    exemplars = [exemplar for reading in readings for exemplar in reading.exemplars]
    assert len(exemplars) >= 4
    assert {(exemplar.trace_id, exemplar.span_id) for exemplar in exemplars} <= spans


def test_ended_request_waits_for_its_last_steps() -> None:
    bench = Bench()
    bench.run_request("r")
    assert "llmprism.request" not in {span.name for span in bench.consume(now_ns=HOLD_NS)}
    assert "llmprism.request" in {span.name for span in bench.consume(now_ns=2 * HOLD_NS)}
    assert bench.consume(now_ns=3 * HOLD_NS) == []


def test_request_that_never_ended_is_an_error_when_the_engine_is_gone() -> None:
    bench = Bench()
    bench.requests.record_arrival("r", 0)
    bench.requests.record_event("r", RequestEvent.SCHEDULED, 10 * MS)
    bench.run_step({"r": 3}, 10)
    assert "llmprism.request" not in {span.name for span in bench.consume()}
    spans = bench.consume(is_over=True)
    assert find(spans, "llmprism.request").status.code == Status.STATUS_CODE_ERROR
    assert "llmprism.request.decode" not in {span.name for span in spans}


def test_end_without_an_arrival_is_counted() -> None:
    bench = Bench()
    bench.requests.record_end("r", 5, Finish.STOP, prompt_tokens=1, output_tokens=1)
    assert bench.consume() == []
    assert bench.counters.value(names.LOST, stage="requests", cause="arrival_missing") == 1


def test_local_parent_makes_the_request_internal() -> None:
    bench = Bench()
    bench.requests.record_arrival("r", 0, f"00-{TRACE}-{CALLER}-01", is_local_parent=True)
    bench.requests.record_end("r", 5, Finish.ABORT, prompt_tokens=1, output_tokens=0)
    spans = bench.consume()
    assert find(spans, "llmprism.request").kind == Span.SPAN_KIND_INTERNAL
    assert {span.name for span in spans} == {"llmprism.request", "llmprism.request.queue"}


def test_preemptions_are_events_of_the_phase_they_fell_in() -> None:
    bench = Bench()
    bench.requests.record_arrival("r", 0)
    for event, at_ms, tokens in (
        (RequestEvent.SCHEDULED, 10, 0),
        (RequestEvent.PREEMPTED, 12, 6),
        (RequestEvent.RESUMED, 15, 2),
        (RequestEvent.FIRST_TOKEN, 20, 0),
        (RequestEvent.PREEMPTED, 30, 9),
        (RequestEvent.RESUMED, 35, 0),
        (RequestEvent.RESPONDED, 50, Finish.LENGTH),
    ):
        bench.requests.record_event("r", event, at_ms * MS, tokens=tokens)
    bench.requests.record_end("r", 48 * MS, Finish.STOP, prompt_tokens=7, output_tokens=3)
    spans = bench.consume()
    request = read_attributes(find(spans, "llmprism.request"))
    assert request["llmprism.request.recomputed_tokens"] == 4 + 9
    assert request["llmprism.request.preemptions"] == 2
    assert request["gen_ai.response.finish_reasons"].values[0].string_value == "length"
    told = {
        name: [
            (event.name, (event.time_unix_nano - REALTIME_NS) // MS, read_attributes(event))
            for event in find(spans, f"llmprism.request.{name}").events
        ]
        for name in ("queue", "prefill", "decode")
    }
    lost, cached = "llmprism.request.lost_tokens", "llmprism.request.cached_tokens"
    assert told == {
        "queue": [],
        "prefill": [
            ("llmprism.request.preempted", 12, {lost: 6}),
            ("llmprism.request.resumed", 15, {cached: 2}),
        ],
        "decode": [
            ("llmprism.request.preempted", 30, {lost: 9}),
            ("llmprism.request.resumed", 35, {cached: 0}),
        ],
    }
    decode = find(spans, "llmprism.request.decode")
    assert decode.end_time_unix_nano == REALTIME_NS + 50 * MS  # as the user saw it


def test_phases_carry_their_tokens() -> None:
    bench = Bench()
    bench.run_request("r")
    spans = bench.consume()
    counts = {
        name: {key for key in read_attributes(find(spans, f"llmprism.request.{name}")) if "tokens" in key}
        for name in ("queue", "prefill", "decode")
    }
    assert counts == {
        "queue": {"gen_ai.usage.input_tokens"},
        "prefill": {"gen_ai.usage.input_tokens", "llmprism.request.cached_tokens"},
        "decode": {"gen_ai.usage.output_tokens"},
    }


def test_engine_that_dies_gives_its_open_requests_with_an_error_and_what_they_got() -> None:
    bench = Bench()
    bench.requests.record_arrival("r", 0)
    bench.requests.record_event("r", RequestEvent.SCHEDULED, 10 * MS)
    bench.run_step({"r": 7}, 10, ("r",))
    bench.requests.record_event("r", RequestEvent.FIRST_TOKEN, 19 * MS, 0)
    bench.run_step({"r": 1}, 20)
    request = find(bench.consume(is_over=True), "llmprism.request")
    attributes = read_attributes(request)
    assert request.status.code == Status.STATUS_CODE_ERROR
    assert attributes["gen_ai.usage.input_tokens"] == 7
    assert attributes["gen_ai.usage.output_tokens"] == 2
    assert attributes["llmprism.request.steps"] == 2


def test_gauges_are_the_last_serving_steps_and_training_has_none() -> None:
    bench = Bench()
    bench.rank.record_rank(0, 0, 5 * MS)
    bench.steps.record_trained(bench.keeper.admit_step(0), 0, 5 * MS)
    bench.consume()
    assert {reading.name for reading in bench.store.read_all()} == {names.STEP_CYCLE, names.STEP_GAP}
    state = EngineState(waiting=4, running=2, kv_usage=0.5)
    ticket = bench.steps.record_scheduled({"r": 1}, (), state, 10 * MS, 11 * MS)
    bench.steps.record_output(ticket, 12 * MS)
    bench.steps.record_dummy(20 * MS, 30 * MS)
    bench.consume()
    told = {
        (reading.name, *reading.attributes.values()): reading.value
        for reading in bench.store.read_all()
        if isinstance(reading, NumberReading)
    }
    assert told == {
        (names.ENGINE_REQUESTS, "running"): 2,
        (names.ENGINE_REQUESTS, "waiting"): 4,
        (names.ENGINE_KV_USAGE,): 0.5,
        (names.STEP_TOKENS, "prefill"): 0,
        (names.STEP_TOKENS, "decode"): 1,
    }
