# Records go in as the hooks write them; the numbers expected are worked out by hand.
import numpy as np

from otel_llmprism.exporters.ledger_chunks import encode_chunk
from otel_llmprism.model.member_sums import sum_request_tokens
from otel_llmprism.model.members import RunningState
from otel_llmprism.model.request_texts import RequestTexts
from otel_llmprism.model.steps import MEMBERS_COMPLETE, OUTPUT_MISSING, RANKS_MISSING, UNKNOWN, LedgerTables
from otel_llmprism.native import ring_records as records
from otel_llmprism.native.ledger_layout import MAX_CHUNK_BYTES, ChunkAnchor
from otel_llmprism.native.ring import RunningSet
from otel_llmprism.native.ring_records import CollectiveOp, RequestEvent, StepKind, derive_request_handle
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ring import RingAssembler, RingAssemblerConfig
from otel_llmprism.receivers.ring_pending import MAX_COLLECTIVES

NO_GRACE = RingAssemblerConfig(expected_ranks=0)
LATER = 10**18


def schedule(
    step: int,
    start: int,
    tokens: dict[str, int] | None = None,
    running: RunningSet[str] | None = None,
    prefill: tuple[str, ...] = (),
    *,
    kind: StepKind = StepKind.DECODE,
    lane: int = 0,
) -> bytes:
    tokens = tokens or {}
    members = running.diff(tokens, prefill, lane) if running else []
    prompt = sum(tokens[name] for name in prefill)
    return records.pack_step_scheduled(
        step, start, start + 1, kind, 0, 0.5, sum(1 for count in tokens.values() if count), prompt,
        sum(tokens.values()) - prompt, 0, 0, 0, 0, 0, 0, 1, members, lane,
    )  # fmt: skip


def finish(step: int, ready: int) -> bytes:
    return records.pack_step_output(step, ready, 1, 2, 3)


def assemble(*slots: bytes, config: RingAssemblerConfig = NO_GRACE) -> LedgerTables:
    assembler = RingAssembler(Counters(), config)
    assembler.consume(b"".join(slots))
    tables = assembler.take(0)
    assert tables is not None
    return tables


def test_cycle_runs_from_the_result_before_or_from_its_own_schedule_whichever_is_later() -> None:
    tables = assemble(
        schedule(0, 1000), finish(0, 1500),  # the first: from its schedule
        schedule(1, 1200), finish(1, 2100),  # overlaps: from the result before
        schedule(2, 3000), finish(2, 3300),  # after idling: from its schedule
    )  # fmt: skip
    assert tables.steps.cycle_ns.tolist() == [500, 600, 300]


def test_cycle_goes_on_over_the_end_of_a_chunk() -> None:
    assembler = RingAssembler(Counters(), NO_GRACE)
    assembler.consume(schedule(0, 1000) + finish(0, 1500))
    assembler.take(0)
    assembler.consume(schedule(1, 1200) + finish(1, 2100))
    tables = assembler.take(0)
    assert tables is not None
    assert tables.steps.cycle_ns.tolist() == [600]


def test_training_cycle_is_the_slowest_ranks_end_to_end_without_pauses() -> None:
    config = RingAssemblerConfig(expected_ranks=2)
    parts = [records.pack_pause(2200, 2700, 4)]
    for step, ends in enumerate([(1000, 1100), (2000, 2050), (3000, 3400)]):
        parts += [schedule(step, ends[0] - 500, kind=StepKind.TRAIN), finish(step, max(ends))]
        parts += [records.pack_step_rank(step, rank, end - 400, end) for rank, end in enumerate(ends)]
    tables = assemble(*parts, config=config)
    # 400: each rank's first counts from its own start; 1000: rank 0; 3400 - 2050 less the pause of 500.
    assert tables.steps.cycle_ns.tolist() == [400, 1000, 850]


def test_gap_is_idle_time_while_a_running_request_waited() -> None:
    running: RunningSet[str] = RunningSet(derive_request_handle)
    tables = assemble(
        schedule(0, 1000, {"a": 4}, running, ("a",)), finish(0, 1500),
        schedule(1, 1600, {"a": 1}, running), finish(1, 2000),
        schedule(2, 1900, {"a": 1}, running), finish(2, 2500),
    )  # fmt: skip
    assert tables.steps.gap_ns.tolist() == [0, 100, 0]


def test_idle_time_before_new_work_arrived_is_no_gap() -> None:
    running: RunningSet[str] = RunningSet(derive_request_handle)
    first, second = derive_request_handle("a"), derive_request_handle("b")
    parts = [schedule(0, 1000, {"a": 4}, running, ("a",)), finish(0, 1500)]
    running.leave(["a"])
    parts += [
        records.pack_request_event(first, 900, RequestEvent.QUEUED),
        records.pack_request_event(second, 4900, RequestEvent.QUEUED),
        schedule(1, 5000, {"b": 4}, running, ("b",)), finish(1, 5500),
    ]  # fmt: skip
    assert assemble(*parts).steps.gap_ns.tolist() == [0, 100]


def test_gap_that_the_engine_measured_itself_is_kept() -> None:
    tables = assemble(schedule(0, 1000), records.pack_step_output(0, 1500, 1, 2, 3, gap_ns=77))
    assert tables.steps.gap_ns.tolist() == [77]


def test_parts_join_by_step_id_in_whatever_order_rings_are_drained() -> None:
    assembler = RingAssembler(Counters(), RingAssemblerConfig(expected_ranks=2))
    assembler.consume(records.pack_step_rank(1, 5, 110, 120, tp=1), source=1)
    assembler.consume(schedule(0, 100) + schedule(1, 105), source=0)
    assembler.consume(
        records.pack_step_rank(0, 5, 101, 102) + records.pack_step_rank(0, 2, 103, 104), source=1
    )
    assert assembler.take(0) is None
    assembler.consume(finish(0, 200) + finish(1, 300), source=0)
    first = assembler.take(0)
    assert first is not None
    assert first.steps.step.tolist() == [0]
    assert first.identities.rank[first.ranks.identity_row].tolist() == [2, 5]
    assembler.consume(records.pack_step_rank(1, 2, 111, 121), source=1)
    second = assembler.take(0)
    assert second is not None
    assert second.steps.step.tolist() == [1]
    assert second.ranks.start_ns.tolist() == [111, 110]


def test_step_waits_for_ranks_until_the_grace_is_over_and_late_ones_are_counted() -> None:
    counters = Counters()
    assembler = RingAssembler(counters, RingAssemblerConfig(expected_ranks=2, grace_ns=50))
    assembler.consume(schedule(0, 100) + finish(0, 200) + records.pack_step_rank(0, 0, 101, 102))
    assert assembler.take(249) is None
    tables = assembler.take(250)
    assert tables is not None
    assert tables.steps.flags.tolist() == [MEMBERS_COMPLETE | RANKS_MISSING]
    assembler.consume(records.pack_step_rank(0, 1, 101, 102))
    assert counters.value("llmprism.lost", stage="ring", cause="rank_missing") == 1
    assert counters.value("llmprism.lost", stage="ring", cause="late_part") == 1


def test_ranks_of_steps_that_no_scheduler_tells_of_are_let_go_and_counted() -> None:
    counters = Counters()
    assembler = RingAssembler(counters, RingAssemblerConfig(expected_ranks=1, grace_ns=50))
    for number in range(20):
        assembler.consume(records.pack_step_rank(number, 0, 100, 101))
        assert assembler.take(100 * number) is None
    # Looked at every 10 graces: at 1500 those that were there at 1000.
    assert counters.value("llmprism.lost", stage="ring", cause="unmatched_rank") == 11
    assembler.consume(schedule(19, 1950) + finish(19, 1990))
    tables = assembler.take(2000)
    assert tables is not None
    assert tables.ranks.end_ns.tolist() == [101]
    assert counters.value("llmprism.lost", stage="ring", cause="unmatched_rank") == 19


def test_rank_that_waits_for_its_step_is_kept_however_long_the_step_waits() -> None:
    assembler = RingAssembler(Counters(), RingAssemblerConfig(expected_ranks=1, grace_ns=50))
    assembler.consume(schedule(0, 100) + records.pack_step_rank(0, 0, 100, 101))
    for now_ns in range(0, 5000, 100):
        assert assembler.take(now_ns) is None
    assembler.consume(finish(0, 5000))
    tables = assembler.take(5000)
    assert tables is not None
    assert tables.steps.flags.tolist() == [MEMBERS_COMPLETE]


def test_lost_result_is_given_up_when_a_later_step_is_old() -> None:
    counters = Counters()
    assembler = RingAssembler(counters, RingAssemblerConfig(expected_ranks=0, grace_ns=50))
    assembler.consume(schedule(0, 100) + schedule(1, 200) + finish(1, 300) + schedule(2, 310))
    assert assembler.take(349) is None
    tables = assembler.take(350)
    assert tables is not None
    assert tables.steps.step.tolist() == [0, 1]
    assert tables.steps.output_ready_ns.tolist() == [int(UNKNOWN), 300]
    assert tables.steps.cycle_ns.tolist() == [int(UNKNOWN), 100]
    assert tables.steps.flags[0] & OUTPUT_MISSING
    assert counters.value("llmprism.lost", stage="ring", cause="output_missing") == 1


def test_steps_that_never_came_and_parts_without_a_step_are_counted() -> None:
    counters = Counters()
    assembler = RingAssembler(counters, NO_GRACE)
    assembler.consume(schedule(0, 100) + finish(0, 200) + finish(2, 250) + schedule(3, 300) + finish(3, 400))
    tables = assembler.take(0)
    assert tables is not None
    assert counters.value("llmprism.lost", stage="ring", cause="step_missing") == 2
    assert counters.value("llmprism.lost", stage="ring", cause="unmatched_output") == 1


def test_final_take_gives_what_is_still_in_flight() -> None:
    assembler = RingAssembler(Counters(), RingAssemblerConfig(expected_ranks=8))
    assembler.consume(schedule(0, 100))
    assert assembler.take(LATER) is None
    tables = assembler.take(LATER, is_final=True)
    assert tables is not None
    assert tables.steps.step.tolist() == [0]
    assert assembler.take(LATER, is_final=True) is None


def test_unknown_kinds_are_skipped_and_counted() -> None:
    counters = Counters()
    assembler = RingAssembler(counters, NO_GRACE)
    assembler.consume(b"\x63\0".ljust(128, b"\1") + schedule(0, 1) + finish(0, 2))
    assert assembler.take(0) is not None
    assert counters.value("llmprism.lost", stage="ring", cause="unknown_record") == 1


def test_record_split_between_two_drains_is_put_together() -> None:
    running: RunningSet[str] = RunningSet(derive_request_handle)
    tokens = {f"request-{number}": 3 for number in range(20)}
    slots = records.pack_request_arrived(
        7, 1, b"T" * 16, b"S" * 8, b"P" * 8, "r" * 100, "x" * 150, sampled=True
    ) + schedule(0, 1, tokens, running, tuple(tokens))
    for cut in range(0, len(slots), 128):
        counters = Counters()
        assembler = RingAssembler(counters, NO_GRACE)
        assembler.consume(slots[:cut], source=4)
        assembler.consume(slots[cut:] + finish(0, 9), source=4)
        tables = assembler.take(0)
        assert tables is not None
        assert tables.steps.flags.tolist() == [MEMBERS_COMPLETE]
        assert RequestTexts(tables.arrivals, tables.text).read_request_id(0) == "r" * 100
        assert counters.read_all() == []


def test_head_that_announces_slots_which_do_not_follow_holds_nothing_up_and_is_counted() -> None:
    counters = Counters()
    assembler = RingAssembler(counters, NO_GRACE)
    head = bytearray(schedule(0, 100))
    head[82:84] = b"\xff\xff"  # member_count
    assembler.consume(bytes(head))
    assert assembler.take(0) is None
    assembler.consume(finish(0, 200))
    tables = assembler.take(0)
    assert tables is not None
    assert tables.steps.cycle_ns.tolist() == [100]
    assert counters.value("llmprism.lost", stage="ring", cause="malformed_record") == 1


def test_ids_of_every_length_are_read_back() -> None:
    pairs = [
        ("short", ""),
        ("same", "same"),
        ("chatcmpl-1-ab", "chatcmpl-1"),
        ("r" * 64, "e" * 96),
        ("r" * 65, "e" * 97),
        ("r" * 160, "r" * 160 + "x"),
        ("é" * 80, "éa"),
    ]
    slots = b"".join(
        records.pack_request_arrived(
            row, row, bytes([row]) * 16, b"S" * 8, b"P" * 8, own, external, sampled=True
        )
        for row, (own, external) in enumerate(pairs)
    )
    tables = assemble(slots)
    texts = RequestTexts(tables.arrivals, tables.text)
    for row, (own, external) in enumerate(pairs):
        assert texts.read_request_id(row) == own
        assert texts.read_external_id(row) == records.bound_id(external).decode()
        assert texts.read_trace_id(row) == bytes([row]) * 16
    assert (texts.read_span_id(0), texts.read_parent_span_id(0)) == (b"S" * 8, b"P" * 8)


def test_two_lanes_add_up_each_for_itself() -> None:
    running: RunningSet[str] = RunningSet(derive_request_handle)
    slots = []
    for step in range(6):
        tokens = {"a": 1, "b": 1} if step % 2 else {"c": 1}
        slots += [schedule(step, step * 10, tokens, running, lane=step % 2), finish(step, step * 10 + 5)]
    tables = assemble(*slots)
    assert set(tables.steps.flags.tolist()) == {MEMBERS_COMPLETE}
    sums = sum_request_tokens(tables.steps.lane, tables.members, tables.running)
    assert dict(zip(sums.handle.tolist(), sums.decode_tokens.tolist(), strict=True)) == {
        derive_request_handle(name): 3 for name in "abc"
    }


def test_dropped_record_leaves_no_wrong_sums_after_the_next_one() -> None:
    running: RunningSet[str] = RunningSet(derive_request_handle)
    kept = [schedule(0, 0, {"a": 1, "b": 1}, running), finish(0, 5)]
    running.leave(["a"])
    schedule(1, 10, {"b": 1, "c": 8}, running, ("c",))  # the ring had no room
    running.repeat_all()
    kept += [finish(1, 15), schedule(2, 20, {"b": 1, "c": 1}, running), finish(2, 25)]
    tables = assemble(*kept)
    assert tables.steps.flags.tolist() == [MEMBERS_COMPLETE] * 2
    sums = sum_request_tokens(tables.steps.lane, tables.members, tables.running)
    tokens = dict(zip(sums.handle.tolist(), sums.decode_tokens.tolist(), strict=True))
    assert [tokens[derive_request_handle(name)] for name in "abc"] == [1, 2, 1]


def test_wrong_totals_are_flagged_and_counted() -> None:
    counters = Counters()
    assembler = RingAssembler(counters, NO_GRACE)
    running: RunningSet[str] = RunningSet(derive_request_handle)
    running.diff({"lost": 1}, ())
    assembler.consume(schedule(0, 0, {"lost": 1}, running) + finish(0, 5))
    tables = assembler.take(0)
    assert tables is not None
    assert tables.steps.flags.tolist() == [0]
    assert counters.value("llmprism.lost", stage="ring", cause="members_mismatch") == 1


def test_members_of_one_step_come_out_of_state_and_changes() -> None:
    running: RunningSet[str] = RunningSet(derive_request_handle)
    tables = assemble(
        schedule(0, 0, {"a": 5, "b": 1}, running, ("a",)), finish(0, 5),
        schedule(1, 10, {"a": 1, "c": 7}, running, ("c",)), finish(1, 15),
    )  # fmt: skip
    state = RunningState(tables.running)
    state.apply(tables.members, slice(0, 3))
    rows = slice(3, None)
    state.apply(tables.members, rows)
    members = state.list_members(0, tables.members, rows)
    told = zip(members.handle.tolist(), members.tokens.tolist(), members.is_prefill.tolist(), strict=True)
    assert {handle: (tokens, prefill) for handle, tokens, prefill in told} == {
        derive_request_handle("a"): (1, 0),
        derive_request_handle("c"): (7, 1),
    }


def test_large_backlog_comes_out_in_pieces_that_fit_a_chunk() -> None:
    assembler = RingAssembler(Counters(), NO_GRACE)
    assembler.consume(b"".join(schedule(step, step) + finish(step, step + 1) for step in range(5000)))
    seen: list[int] = []
    pieces = 0
    while (tables := assembler.take(0)) is not None:
        seen += tables.steps.step.tolist()
        pieces += 1
    assert seen == list(range(5000))
    assert pieces > 1
    assert np.all(np.diff(seen) == 1)


def collect(step: int, rank: int, seq: int, start: int, end: int, *, group: int = 9) -> bytes:
    return records.pack_collective(step, rank, group, seq, CollectiveOp.ALL_REDUCE, 64, start, end)


def test_collectives_and_phases_join_their_step_and_fill_a_wait_that_nobody_told() -> None:
    config = RingAssemblerConfig(expected_ranks=2)
    tables = assemble(
        collect(1, 0, 1, 250, 260), collect(1, 0, 0, 230, 234), collect(1, 1, 0, 231, 234),
        records.pack_step_phases(1, 1, 70, 1, 2, 3, 4, 5),
        *(records.pack_step_rank(0, rank, 110, 120) for rank in (0, 1)),
        records.pack_step_rank(1, 0, 210, 290), records.pack_step_rank(1, 1, 210, 290, wait_ns=77),
        schedule(0, 100), finish(0, 200), schedule(1, 201), finish(1, 300),
        config=config,
    )  # fmt: skip
    assert tables.collectives.step_row.tolist() == [1, 1, 1]
    assert tables.collectives.rank.tolist() == [0, 0, 1]
    assert tables.collectives.seq.tolist() == [0, 1, 0]
    assert tables.ranks.step_row.tolist() == [0, 1, 0, 1]
    assert tables.ranks.wait_ns.tolist() == [int(UNKNOWN), 14, int(UNKNOWN), 77]
    assert (tables.phases.step_row.tolist(), tables.phases.iteration.tolist()) == ([1], [70])


def test_time_by_the_device_is_the_wait_where_it_is_known() -> None:
    config = RingAssemblerConfig(expected_ranks=1)
    tables = assemble(
        records.pack_collective(0, 0, 9, 0, CollectiveOp.ALL_REDUCE, 64, 110, 111, 5000),
        collect(0, 0, 1, 112, 115),
        records.pack_step_rank(0, 0, 110, 120),
        schedule(0, 100), finish(0, 200),
        config=config,
    )  # fmt: skip
    assert tables.ranks.wait_ns.tolist() == [5003]


def test_collectives_that_come_late_or_without_a_step_are_counted() -> None:
    counters = Counters()
    assembler = RingAssembler(counters, NO_GRACE)
    assembler.consume(collect(0, 0, 0, 1, 2) + collect(1, 0, 0, 1, 2) + schedule(2, 100) + finish(2, 200))
    assert assembler.take(0) is not None
    assembler.consume(collect(2, 0, 0, 1, 2) + records.pack_step_phases(2, 0, 1))
    assert counters.value("llmprism.lost", stage="ring", cause="unmatched_collective") == 2
    assert counters.value("llmprism.lost", stage="ring", cause="late_part") == 2


def test_step_with_more_collectives_than_a_chunk_takes_keeps_the_first_of_every_rank() -> None:
    counters = Counters()
    assembler = RingAssembler(counters, NO_GRACE)
    per_rank = MAX_COLLECTIVES // 2 + 10
    parts = [collect(0, rank, seq, 10 + seq, 11 + seq) for rank in (0, 1) for seq in range(per_rank)]
    assembler.consume(b"".join(parts) + schedule(0, 1) + finish(0, 99) + schedule(1, 100) + finish(1, 120))
    tables = assembler.take(0)
    assert tables is not None
    assert tables.steps.step.tolist() == [0]  # its collectives fill the chunk
    assert np.bincount(tables.collectives.rank).tolist() == [MAX_COLLECTIVES // 2] * 2
    assert int(tables.collectives.seq.max()) == MAX_COLLECTIVES // 2 - 1
    assert counters.value("llmprism.lost", stage="ring", cause="collectives_beyond_limit") == 20
    assert len(encode_chunk(tables, ChunkAnchor(0, 0, 0, 0))) < MAX_CHUNK_BYTES
