# Steps and what was expected of them -> sums by bin: busy, expected, gap, the parts of a step, the queue.
# Knows no cause.
from dataclasses import dataclass

import numpy as np

from otel_llmprism.diagnose.facts.bins import I64, BinRing
from otel_llmprism.diagnose.facts.real_time import to_real_ns
from otel_llmprism.model.clocks import Anchor
from otel_llmprism.model.steps import F64, OUTPUT_MISSING, RANKS_MISSING, U64, UNKNOWN, LedgerTables
from otel_llmprism.model.work import ScoredTable
from otel_llmprism.native.ring_codes import StepKind

CHARTED = (StepKind.PREFILL, StepKind.DECODE, StepKind.MIXED, StepKind.TRAIN)
MAX_TOKENS = 1 << 50
_MAX_SPAN_NS = 3600 * 1_000_000_000  # of one step; longer is a broken clock


@dataclass(frozen=True, slots=True)
class SlowStep:
    """The step of these that exceeded its expectation most."""

    step: int
    time_ns: int
    cycle_s: float
    expected_s: float
    is_flagged: bool


@dataclass(frozen=True, slots=True)
class StepNotes:
    """What is not a sum: the last output, the worst step, and how much of the picture is missing."""

    last_output_ns: int
    first_step: int
    last_step: int
    slowest: SlowStep | None
    expected_s: float  # of the last step; NaN: nothing was expected
    seen: int
    broken: int  # steps without output or with ranks missing
    unscored: int  # scored steps that the ledger does not hold


def add_steps(bins: BinRing, tables: LedgerTables, scored: ScoredTable, anchor: Anchor) -> StepNotes:
    """Add these steps' sums; return what is not a sum."""
    steps = tables.steps
    time = to_real_ns(steps.output_ready_ns, anchor)
    charted = np.flatnonzero(np.isin(steps.kind, CHARTED) & (time > 0))
    at = time[charted]
    present = np.maximum(1, steps.requests[charted].astype(np.int64))
    waiting = steps.waiting[charted].astype(np.int64)
    cycle = to_seconds(steps.cycle_ns[charted])
    gap = to_seconds(steps.gap_ns[charted])
    span = np.nan_to_num(cycle) + np.nan_to_num(gap)
    schedule_ns = steps.schedule_end_ns - np.minimum(steps.schedule_start_ns, steps.schedule_end_ns)
    columns: dict[str, F64] = {
        "steps": np.ones(len(at)),
        "busy_s": np.nan_to_num(cycle),
        "gap_s": np.nan_to_num(gap),
        "schedule_s": np.nan_to_num(to_seconds(schedule_ns[charted])),
        "execute_s": np.nan_to_num(to_seconds(steps.execute_ns[charted])),
        "sample_s": np.nan_to_num(to_seconds(steps.sample_ns[charted])),
        "output_s": np.nan_to_num(to_seconds(steps.output_ns[charted])),
        "waiting_s": waiting * span,
        "request_s": (present + waiting) * span,
        "preemptions": steps.preemptions[charted].astype(np.float64),
        "kv_s": np.clip(np.nan_to_num(steps.kv_usage[charted].astype(np.float64)), 0, 1) * span,
        "tokens": (steps.prefill_tokens[charted].astype(np.float64) + steps.decode_tokens[charted]),
    }
    bins.add_columns(at, columns)
    _add_kinds(bins, tables, charted, at, span)
    place = {int(value): row for row, value in enumerate(steps.step[charted].tolist())}
    people = present + waiting
    known = np.array([place.get(value, -1) for value in scored.step.tolist()], dtype=np.int64)
    weight = np.where(known >= 0, people[known] if len(people) else 1, 1).astype(np.float64)
    slowest, expected = _add_scored(bins, scored, weight, anchor)
    flags = steps.flags
    return StepNotes(
        last_output_ns=int(at.max(initial=0)),
        first_step=int(steps.step.min(initial=UNKNOWN)) if len(steps) else -1,
        last_step=int(steps.step.max(initial=0)) if len(steps) else -1,
        slowest=slowest,
        expected_s=expected,
        seen=len(steps),
        broken=int(np.sum((flags & (OUTPUT_MISSING | RANKS_MISSING)) > 0)),
        unscored=int(np.sum(known < 0)),
    )


def _add_kinds(bins: BinRing, tables: LedgerTables, charted: I64, at: I64, span: F64) -> None:
    """Add, by kind, the work below what the page draws; what waits and runs weighs by its time."""
    steps = tables.steps
    kind = steps.kind[charted]
    for code in np.unique(kind).tolist():
        own = charted[kind == code]
        weight = span[kind == code]
        columns = {
            "steps": np.ones(len(own)),
            "span_s": weight,
            "gap_s": np.nan_to_num(to_seconds(steps.gap_ns[own])),
            "prefill_tokens": steps.prefill_tokens[own],
            "decode_tokens": steps.decode_tokens[own],
            "kv_tokens": np.where(steps.kv_tokens[own] < MAX_TOKENS, steps.kv_tokens[own], 0),
            "waiting": steps.waiting[own] * weight,
            "running": steps.running[own] * weight,
        }
        bins.add_columns(at[kind == code], {f"kind/{code}/{name}": one for name, one in columns.items()})


def to_seconds(duration_ns: U64) -> F64:
    """Return seconds, NaN where the duration is unknown or longer than any step."""
    return np.where(duration_ns < _MAX_SPAN_NS, duration_ns, np.nan) / 1e9


def _add_scored(
    bins: BinRing, scored: ScoredTable, weight: F64, anchor: Anchor
) -> tuple[SlowStep | None, float]:
    """Add what was expected; `weight` is the number of requests that each step held up."""
    cycle, expected = to_seconds(scored.cycle_ns), scored.expected_ns / 1e9
    time = to_real_ns(scored.time_ns, anchor)
    is_sound = np.isfinite(cycle) & np.isfinite(expected) & (expected > 0) & (time > 0)
    at, excess = time[is_sound], (cycle - expected)[is_sound]
    sums = {
        "scored_s": cycle[is_sound],
        "expected_s": expected[is_sound],
        "excess_s": excess,
        "lost_s": np.maximum(0, excess) * weight[is_sound],
        "flagged": scored.is_flagged[is_sound],
        "unknown_work": scored.is_known[is_sound] == 0,
    }
    bins.add_columns(at, sums)
    kind = scored.kind[is_sound]
    for code in np.unique(kind).tolist():
        own = kind == code
        names = {f"kind/{code}/observed_s": sums["scored_s"], f"kind/{code}/expected_s": sums["expected_s"]}
        bins.add_columns(at[own], {name: column[own] for name, column in names.items()})
    if not is_sound.any():
        return None, float("nan")
    known = np.flatnonzero(is_sound & (scored.is_known > 0))
    last_expected = float(expected[is_sound][-1])
    if not len(known):
        return None, last_expected
    worst = known[np.argmax((cycle - expected)[known])]
    slowest = SlowStep(
        int(scored.step[worst]), int(time[worst]), float(cycle[worst]), float(expected[worst]),
        bool(scored.is_flagged[worst]),
    )  # fmt: skip
    return slowest, last_expected
