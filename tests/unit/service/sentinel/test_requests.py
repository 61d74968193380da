# Requests out of the ledger: what their steps sum up to, and what stays unexplained.
from dataclasses import replace

import numpy as np
import pytest

from otel_llmprism.model.chunks import ChunkMembers
from otel_llmprism.model.members import JOINED, LEFT, RESET, TOKENS, RunningState
from otel_llmprism.model.steps import MemberTable, RunningTable
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ledger import LedgerBatch
from otel_llmprism.service.sentinel.request_sums import MAX_LANES, sum_request_amounts
from otel_llmprism.service.sentinel.request_watch import RequestWatch
from otel_llmprism.service.sentinel.side_series import SideSeries
from otel_llmprism.testing.made_ledger import START_NS, MadeLedger, add_request

SPAN = (b"t" * 16, b"s" * 8)


def make_members(seed: int, steps: int) -> ChunkMembers:
    """Let requests come, go without a token, leave, and be reset by chance; one lane."""
    random = np.random.default_rng(seed)
    rows: list[tuple[int, int, int, int, int, int]] = []
    here: dict[int, int] = {0: 900, 1: 901}
    running = RunningTable(np.array([0, 1], np.uint32), np.array([900, 901], np.uint64))
    for step in range(steps):
        chance = random.random()
        if chance < 0.05:
            rows.append((step, RESET, 0, 0, 0, 0))
            here = {}
        elif chance < 0.4 and len(here) < 8:
            slot = int(next(free for free in range(9) if free not in here))
            here[slot] = 1000 + step
            rows.append((step, JOINED, 1, slot, int(random.integers(0, 3)), here[slot]))
        elif chance < 0.6 and here:
            slot = next(iter(here))
            rows.append((step, LEFT, 0, slot, 0, here.pop(slot)))
        elif chance < 0.8 and here:
            slot = next(iter(here))
            rows.append((step, TOKENS, 0, slot, int(random.integers(0, 2)), here[slot]))
    own = np.array(rows or np.zeros((0, 6)), np.uint64)
    members = MemberTable(
        own[:, 0].astype(np.uint32), own[:, 1].astype(np.uint8), own[:, 2].astype(np.uint8),
        own[:, 3].astype(np.uint32), own[:, 4].astype(np.uint32), own[:, 5],
    )  # fmt: skip
    return ChunkMembers(0, np.zeros(steps, np.uint16), members, running)


@pytest.mark.parametrize("seed", range(30))
def test_sums_over_whole_chunks_are_those_of_step_by_step(seed: int) -> None:
    own = make_members(seed, 40)
    amounts = np.random.default_rng(seed).integers(1, 1000, (40, 2))
    told: dict[int, list[int]] = {}
    state = RunningState(own.running)
    for step in range(40):
        first, last = np.searchsorted(own.members.step_row, [step, step + 1]).tolist()
        state.apply(own.members, slice(first, last))
        for handle in state.list_members(0, own.members, slice(first, last)).handle.tolist():
            spent = told.setdefault(handle, [0, 0])
            spent[0] += int(amounts[step, 0])
            spent[1] += int(amounts[step, 1])
    handles, sums = sum_request_amounts(own, amounts)
    found = {handle: own for handle, own in zip(handles.tolist(), sums.tolist(), strict=True) if any(own)}
    assert found == told


def test_a_ledger_that_claims_thousands_of_lanes_takes_no_memory() -> None:
    own = make_members(1, 10)
    wild = own.members.slot | np.uint32(0xFFFF0000)
    members = replace(own.members, slot=wild)
    handles, sums = sum_request_amounts(own._replace(members=members), np.ones((10, 3), np.int64))
    assert sums.shape == (len(handles), 3)
    assert MAX_LANES < 0xFFFF


def take_one(queued_ns: int, after_ns: int) -> tuple[RequestWatch, LedgerBatch]:
    """One request that was in every step of a chunk, queued before and was ended after."""
    batch, _ = next(MadeLedger(seconds=0.4).list_batches())
    last = int(batch.tables.steps.output_ready_ns[-1])
    times = (START_NS - queued_ns, START_NS, last + after_ns)
    tables = add_request(batch.tables, "request-1", times, SPAN)
    watch = RequestWatch(Counters())
    batch = LedgerBatch(batch.source, batch.chunks, tables)
    watch.take(batch, np.array([3], dtype=np.intp))
    return watch, batch


def test_what_queue_and_cycles_do_not_explain_is_told() -> None:
    watch, batch = take_one(queued_ns=20_000_000, after_ns=70_000_000)
    (one,) = watch.release(START_NS + 10 * 10**9)
    assert one.queue_s == pytest.approx(0.02)
    assert one.unexplained_s == pytest.approx(0.07, abs=1e-6)
    assert one.spent.slow_steps == 1
    assert one.spent.cycle_ns == int(batch.tables.steps.cycle_ns.sum())


def test_a_request_waits_for_the_steps_that_may_still_come() -> None:
    watch, batch = take_one(0, 0)
    assert watch.release(int(batch.tables.steps.output_ready_ns[-1])) == []


def test_queueing_is_charted_against_what_is_usual() -> None:
    watch, batch = take_one(queued_ns=500_000_000, after_ns=0)
    times, waits = watch.list_queued(batch)
    assert waits.tolist() == [0.5]
    series = SideSeries(0)
    usual = np.full(100, 0.01)
    series._service.add(np.full(100, 0.1))
    series.chart_queues(np.arange(100, dtype=np.uint64), usual, learns=True)
    points = series.chart_queues(times, waits, learns=False)
    assert points.log_ratio[0] > np.log(2)


def test_usual_gaps_are_not_learned_inside_a_finding() -> None:
    series = SideSeries(0)
    series.chart_queues(np.arange(100, dtype=np.uint64), np.full(100, 0.01), learns=True)
    series.chart_queues(np.arange(5000, dtype=np.uint64), np.full(5000, 9.0), learns=False)
    again = SideSeries(0)
    again.load(series.dump())
    assert again.dump() == series.dump()
    assert series._queue.read() == 0.01
