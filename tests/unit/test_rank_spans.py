# Steps of an engine that trains, and of one that recorded collectives, as spans; numbers worked out by hand.
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_llmprism.exporters.collective_spans import MAX_COLLECTIVES
from otel_llmprism.exporters.step_origin import StepOrigin
from otel_llmprism.exporters.step_spans import build_step_spans
from otel_llmprism.model.clocks import Anchor
from otel_llmprism.native import ring_records as records
from otel_llmprism.native.ring_records import UNKNOWN_NS, CollectiveOp, Kept, Mode, StepKind
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ring import RingAssembler, RingAssemblerConfig
from otel_llmprism.semconv import collective

MS = 1_000_000
ORIGIN = StepOrigin("engine", bytes(range(16)), Anchor(0, 1_000))
GROUP = records.derive_group_hash("tp", (0, 1))


def schedule(step: int, kind: StepKind = StepKind.DECODE) -> bytes:
    start = step * 100 * MS
    kept = (Kept.RANDOM, 1.0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0)
    return records.pack_step_scheduled(step, start, start + MS, kind, *kept, Mode.SENTINEL)


def finish(step: int, execute_ns: int = UNKNOWN_NS) -> bytes:
    return records.pack_step_output(step, (step * 100 + 50) * MS, execute_ns, UNKNOWN_NS, UNKNOWN_NS)


def run_rank(step: int, rank: int, end_ms: int) -> bytes:
    start = step * 100
    return records.pack_step_rank(step, rank, (start + 10) * MS, (start + end_ms) * MS, tp=rank)


def collect(step: int, rank: int, seq: int, device_ns: int = UNKNOWN_NS) -> bytes:
    start = (step * 100 + 11 + seq) * MS
    op = CollectiveOp.ALL_REDUCE
    return records.pack_collective(step, rank, GROUP, seq, op, 4096, start, start + MS // 2, device_ns)


def build(*slots: bytes, row: int = 0, ranks: int = 2) -> list[Span]:
    assembler = RingAssembler(Counters(), RingAssemblerConfig(expected_ranks=ranks))
    assembler.consume(b"".join(slots))
    tables = assembler.take(0)
    assert tables is not None
    return list(build_step_spans(tables, row, ORIGIN))


def read(span: Any) -> dict[str, Any]:
    return {item.key: getattr(item.value, item.value.WhichOneof("value")) for item in span.attributes}


def test_collectives_of_a_kept_step_are_spans_below_their_rank() -> None:
    spans = build(
        schedule(0), finish(0), schedule(1), finish(1),
        *(run_rank(step, rank, 40) for step in (0, 1) for rank in (0, 1)),
        collect(1, 0, 0), collect(1, 0, 1), collect(1, 1, 0, device_ns=2 * MS),
        row=1,
    )  # fmt: skip
    assert [span.name.removeprefix("llmprism.") for span in spans] == [
        *("step", "rank", "collective", "collective", "rank", "collective")
    ]
    first, second, other = (span for span in spans if span.name == "llmprism.collective")
    ranks = [span for span in spans if span.name == "llmprism.rank"]
    assert [span.parent_span_id for span in (first, second, other)] == [
        *(ranks[0].span_id, ranks[0].span_id, ranks[1].span_id)
    ]
    assert len({span.span_id for span in spans}) == len(spans)
    assert {span.trace_id for span in spans} == {spans[0].trace_id}
    assert first.kind == Span.SPAN_KIND_INTERNAL
    assert (first.start_time_unix_nano, first.end_time_unix_nano) == (111 * MS + 1000, 111_500_000 + 1000)
    assert read(first) == {
        "llmprism.collective.op": "all_reduce",
        "llmprism.collective.group": f"{GROUP:016x}",
        "llmprism.collective.seq": 0,
        "llmprism.collective.bytes": 4096,
        "llmprism.collective.wait_s": 0.0005,
    }
    assert read(other)["llmprism.collective.wait_s"] == 0.002  # by the device
    assert [read(rank)["llmprism.rank.wait_s"] for rank in ranks] == [0.001, 0.002]
    assert "llmprism.rank.collectives_omitted" not in read(ranks[0])


def test_a_collective_that_the_device_timed_begins_with_its_rank_and_one_untold_has_no_time() -> None:
    timed = records.pack_collective(0, 0, GROUP, 0, 1, 64, UNKNOWN_NS, UNKNOWN_NS, 3 * MS)
    untold = records.pack_collective(0, 0, GROUP, 1, 1, 64, UNKNOWN_NS, UNKNOWN_NS)
    spans = build(schedule(0), finish(0), run_rank(0, 0, 40), timed, untold, ranks=1)
    rank, first, second = spans[1:]
    begin = 10 * MS + 1000
    assert [span.start_time_unix_nano for span in (rank, first, second)] == [begin] * 3
    assert (first.end_time_unix_nano, second.end_time_unix_nano) == (begin + 3 * MS, begin)
    assert read(first)["llmprism.collective.wait_s"] == 0.003
    assert "llmprism.collective.wait_s" not in read(second)
    assert "llmprism.rank.wait_s" not in read(rank)  # part of it is not known


def test_the_same_step_has_the_same_ids_whoever_makes_its_spans() -> None:
    slots = (schedule(0), finish(0), run_rank(0, 0, 40), collect(0, 0, 0), collect(0, 0, 1))
    assert build(*slots, ranks=1) == build(*slots, ranks=1)


def test_collectives_beyond_the_limit_are_counted_on_their_rank() -> None:
    many = (collect(0, 0, seq) for seq in range(MAX_COLLECTIVES + 9))
    spans = build(schedule(0), finish(0), run_rank(0, 0, 40), *many, ranks=1)
    shown = [span for span in spans if span.name == "llmprism.collective"]
    assert [read(span)["llmprism.collective.seq"] for span in shown] == list(range(MAX_COLLECTIVES))
    assert read(spans[1])["llmprism.rank.collectives_omitted"] == 9


def test_training_step_tells_its_iteration_and_each_rank_its_phases() -> None:
    spans = build(
        schedule(0, StepKind.TRAIN), finish(0), run_rank(0, 0, 40), run_rank(0, 1, 45),
        records.pack_step_phases(0, 0, 700, 10 * MS, 20 * MS, 5 * MS, 2 * MS, 4),
        records.pack_step_phases(0, 1, 700, forward_ns=11 * MS),
    )  # fmt: skip
    root, first, second = spans
    assert read(root)["llmprism.step.iteration"] == 700
    names = ("forward_s", "backward_s", "optimizer_s", "data_s", "micro_batches")
    told = [{name: read(span).get(f"llmprism.rank.{name}") for name in names} for span in (first, second)]
    assert told[0] == {
        "forward_s": 0.01, "backward_s": 0.02, "optimizer_s": 0.005, "data_s": 0.002, "micro_batches": 4,
    }  # fmt: skip
    assert told[1] == {**dict.fromkeys(names), "forward_s": 0.011}


def test_a_step_took_as_long_as_its_longest_rank_where_the_scheduler_saw_nothing() -> None:
    ranks = (run_rank(0, 0, 40), run_rank(0, 1, 45))
    assert read(build(schedule(0), finish(0), *ranks)[0])["llmprism.step.execute_s"] == 0.035
    assert read(build(schedule(0), finish(0, 20 * MS), *ranks)[0])["llmprism.step.execute_s"] == 0.02
    assert "llmprism.step.execute_s" not in read(build(schedule(0), finish(0), ranks=0)[0])


def test_every_operation_has_its_name() -> None:
    assert [op.name.lower() for op in CollectiveOp][1:] == list(collective.OPS)
