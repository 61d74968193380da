# A step's time is the cycle (docs/adr/0010): pure arithmetic over columns in step order.
from typing import NamedTuple

import numpy as np

from otel_llmprism.model.steps import U32, U64, UNKNOWN, PauseTable, RankTable


class StepCycles(NamedTuple):
    cycle_ns: U64
    free_ns: U64  # when the latest result of the steps before was ready; 0 before the first


def compute_cycles(schedule_start_ns: U64, output_ready_ns: U64, free_before_ns: int) -> StepCycles:
    """Return output-ready(n) - max(output-ready(n-1), schedule-start(n)), UNKNOWN without a result.

    `free_before_ns` is free_ns after the rows that came before (0 in a new run). A first step, and one
    after a pause, begins at its own schedule start, since that is later than any result before it.
    """
    is_ready = output_ready_ns != UNKNOWN
    ready = np.where(is_ready, output_ready_ns, np.uint64(0))
    latest = np.maximum.accumulate(np.concatenate([[np.uint64(free_before_ns)], ready]))
    origin = np.minimum(np.maximum(latest[:-1], schedule_start_ns), ready)
    return StepCycles(np.where(is_ready, ready - origin, UNKNOWN), latest[:-1])


def compute_gaps(schedule_start_ns: U64, free_ns: U64, runnable_ns: U64, pauses: PauseTable) -> U64:
    """Return how long runnable work waited with no step in flight.

    `runnable_ns`: since when the step's work could have run (0: since before the step before ended).
    """
    waited_from = np.maximum(free_ns, runnable_ns)
    is_idle = (free_ns > 0) & (schedule_start_ns > waited_from)
    gaps = np.where(is_idle, schedule_start_ns - np.minimum(waited_from, schedule_start_ns), np.uint64(0))
    return gaps - np.minimum(measure_pauses(waited_from, schedule_start_ns, pauses), gaps)


def compute_training_cycles(
    ranks: RankTable, step_count: int, rank_of_row: U32, last_end_ns: dict[int, int], pauses: PauseTable
) -> U64:
    """Return, per step, the maximum over ranks of end(n) - end(n-1), pauses excluded.

    `last_end_ns` holds each rank's last end before these rows and is brought up to date. A rank's first
    step counts from its own start. UNKNOWN for a step without ranks.
    """
    order = np.lexsort((ranks.step_row, rank_of_row))
    own, ends = rank_of_row[order], ranks.end_ns[order]
    before = np.concatenate([[np.uint64(0)], ends[:-1]])
    is_first = np.concatenate([[True], own[1:] != own[:-1]]) if len(own) else np.zeros(0, dtype=np.bool_)
    for at in np.flatnonzero(is_first):
        before[at] = last_end_ns.get(int(own[at]), int(ranks.start_ns[order[at]]))
    spans = ends - np.minimum(before, ends)
    spans -= np.minimum(measure_pauses(before, ends, pauses), spans)
    longest = np.zeros(step_count, dtype=np.uint64)
    np.maximum.at(longest, ranks.step_row[order], spans)
    has_rank = np.bincount(ranks.step_row, minlength=step_count) > 0
    last_end_ns.update(zip(own.tolist(), ends.tolist(), strict=True))  # in step order: the latest stays
    return np.where(has_rank, longest, UNKNOWN)


def measure_pauses(from_ns: U64, to_ns: U64, pauses: PauseTable) -> U64:
    """Return how much of each interval lies in a pause (pauses do not overlap; an open one lasts)."""
    total = np.zeros(len(from_ns), dtype=np.uint64)
    for start, end in zip(pauses.start_ns, pauses.end_ns, strict=True):  # few: sleeps, checkpoints
        low, high = np.maximum(from_ns, start), np.minimum(to_ns, end)
        total += np.where(high > low, high - np.minimum(low, high), np.uint64(0))
    return total
