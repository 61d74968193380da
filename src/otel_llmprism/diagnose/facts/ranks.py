# Ranks, their collectives and training phases -> sums by bin: own time, waiting, who arrives last, how long
# the exchange takes once all are there. Times of one node are compared; nothing is converted between nodes.
import numpy as np

from otel_llmprism.diagnose.facts.bins import I64, BinRing
from otel_llmprism.diagnose.facts.steps import to_seconds
from otel_llmprism.model.steps import UNKNOWN, CollectiveTable, LedgerTables
from otel_llmprism.native.ring_codes import CollectiveOp

MAX_RANKS = 128  # of one engine that are told apart
MAX_GROUP_NAME = 120


def add_ranks(bins: BinRing, tables: LedgerTables, step_time_ns: I64) -> None:
    """Add each rank's own time and wait; `step_time_ns` is real time by step row, 0 where unknown."""
    ranks, identities = tables.ranks, tables.identities
    if not len(ranks) or not len(identities):
        return
    is_sound = (ranks.step_row < len(step_time_ns)) & (ranks.identity_row < len(identities))
    step_row = np.where(is_sound, ranks.step_row, 0)
    number = identities.rank[np.where(is_sound, ranks.identity_row, 0)]
    time = step_time_ns[step_row] if len(step_time_ns) else np.zeros(len(ranks), dtype=np.int64)
    span = to_seconds(ranks.end_ns - np.minimum(ranks.start_ns, ranks.end_ns))
    wait, device = to_seconds(ranks.wait_ns), to_seconds(ranks.device_ns)
    own = span - np.minimum(wait, span)
    is_sound &= time > 0
    bins.refused += int(np.sum(~is_sound))
    for rank in np.unique(number[is_sound])[:MAX_RANKS].tolist():
        mine = is_sound & (number == rank)
        told = mine & np.isfinite(own)
        sums = {"told": np.ones(int(told.sum())), "own": own[told], "wait": wait[told]}
        bins.add_columns(time[told], {f"rank/{rank}/{name}": column for name, column in sums.items()})
        on_device = mine & np.isfinite(device)
        bins.add(f"rank/{rank}/device", time[on_device], device[on_device])


def add_phases(bins: BinRing, tables: LedgerTables, step_time_ns: I64) -> None:
    """Add how long training steps waited for data: the rank that waited longest holds up the others."""
    phases = tables.phases
    is_sound = (phases.step_row < len(step_time_ns)) & (phases.data_ns != UNKNOWN)
    if not is_sound.any():
        return
    longest = np.zeros(len(step_time_ns))
    np.maximum.at(longest, phases.step_row[is_sound], np.nan_to_num(to_seconds(phases.data_ns[is_sound])))
    has_phase = np.zeros(len(step_time_ns), dtype=np.bool_)
    has_phase[phases.step_row[is_sound]] = True
    has_phase &= step_time_ns > 0
    bins.add("data_s", step_time_ns[has_phase], longest[has_phase])


def add_collectives(bins: BinRing, collectives: CollectiveTable, step_time_ns: I64) -> None:
    """Add, by rank, how late it came, and by link or group how long the exchange took after the last."""
    is_sound = (collectives.step_row < len(step_time_ns)) & (collectives.start_ns != UNKNOWN)
    is_sound &= (collectives.end_ns != UNKNOWN) & (collectives.end_ns >= collectives.start_ns)
    rows = np.flatnonzero(is_sound)
    rows = rows[step_time_ns[collectives.step_row[rows]] > 0] if len(rows) else rows
    if not len(rows):
        return
    keys = np.stack([collectives.step_row[rows], collectives.group[rows], collectives.seq[rows]], axis=1)
    order = np.lexsort((collectives.rank[rows], keys[:, 2], keys[:, 1], keys[:, 0]))
    rows, keys = rows[order], keys[order]
    watched = step_time_ns[np.unique(keys[:, 0].astype(np.int64))]
    bins.add("watched_steps", watched, np.ones(len(watched)))
    is_first = np.concatenate([[True], np.any(keys[1:] != keys[:-1], axis=1)])
    begins = np.flatnonzero(is_first)
    for first, last in zip(begins, np.append(begins[1:], len(rows)), strict=True):
        if last - first >= 2:  # sampled collectives only: few a second
            _add_collective(bins, collectives, rows[first:last], step_time_ns)


def _add_collective(bins: BinRing, parts: CollectiveTable, rows: I64, step_time_ns: I64) -> None:
    time = step_time_ns[parts.step_row[rows[:1]]]
    starts = parts.start_ns[rows].astype(np.int64)
    ranks = parts.rank[rows].tolist()
    last = int(starts.max())
    late = (starts - starts.min()) / 1e9
    sums = {f"late/{rank}/s": late[place : place + 1] for place, rank in enumerate(ranks)}
    transfer = np.maximum(0, parts.end_ns[rows].astype(np.int64) - last).max() / 1e9
    name = name_exchange(parts, rows)
    sums[f"exchange/{name}/s"] = np.array([transfer])
    sums[f"exchange/{name}/bytes"] = parts.bytes[rows[:1]].astype(np.float64)
    sums[f"late/{ranks[int(np.argmax(starts))]}/last"] = np.ones(1)
    bins.add_columns(time, sums)


def name_exchange(parts: CollectiveTable, rows: I64) -> str:
    """Return `a->b` for two ranks (the sender first, else the lower), else the members joined by commas."""
    ranks = parts.rank[rows].tolist()
    if len(ranks) == 2:
        is_received_first = parts.op[rows[0]] == CollectiveOp.RECV
        first, second = (ranks[1], ranks[0]) if is_received_first else (ranks[0], ranks[1])
        return f"{first}->{second}"
    return ",".join(map(str, ranks))[:MAX_GROUP_NAME]
