# Whole steps out of the rings -> the ledger's tables about them. Pure.
from dataclasses import fields
from typing import Any

import numpy as np

from otel_llmprism.model.steps import (
    U8,
    U32,
    U64,
    UNKNOWN,
    CollectiveTable,
    IdentityTable,
    MemberTable,
    PhaseTable,
    RankTable,
    StepTable,
)
from otel_llmprism.receivers.ring_pending import ReadySteps
from otel_llmprism.receivers.ring_slots import Rows

_IDENTITY = ("rank", "tp", "pp", "dp", "cp", "ep")


def build_steps(ready: ReadySteps, cycle_ns: U64, gap_ns: U64, flags: U8) -> StepTable:
    """Return the steps with what was worked out of them."""
    made = {"cycle_ns": cycle_ns, "gap_ns": gap_ns, "flags": flags}
    measured = ("output_ready_ns", "execute_ns", "sample_ns", "output_ns")
    columns: list[Any] = []  # each of its field's dtype; the ring's and the table's names agree
    for field in fields(StepTable):
        rows = ready.output if field.name in measured else ready.scheduled
        columns.append(made[field.name] if field.name in made else rows[field.name].copy())
    return StepTable(*columns)


def build_members(ready: ReadySteps) -> MemberTable:
    """Return the changes of membership, their words taken apart."""
    members = ready.members
    word = members["word"]
    return MemberTable(
        step_row=ready.member_row,
        change=(word >> 29).astype(np.uint8),
        is_prefill=(word >> 28 & 1).astype(np.uint8),
        slot=members["slot"].copy(),
        tokens=word & np.uint32(0xFFFFFFF),
        handle=members["handle"].copy(),
    )


def build_ranks(ready: ReadySteps, collectives: CollectiveTable) -> tuple[RankTable, IdentityTable]:
    """Return ranks, rank after rank: each one's times lie together and differ little."""
    rows = ready.ranks
    places = np.stack([rows[name] for name in _IDENTITY], axis=1)
    identities, own = np.unique(places, axis=0, return_inverse=True)
    order = np.lexsort((ready.rank_row, own.ravel()))
    rows = rows[order]
    step_row = ready.rank_row[order]
    ranks = RankTable(
        step_row=step_row,
        identity_row=own.ravel()[order].astype(np.uint32),
        start_ns=rows["start_ns"].copy(),
        end_ns=rows["end_ns"].copy(),
        device_ns=rows["device_ns"].copy(),
        wait_ns=_fill_waits(rows, step_row, collectives),
    )
    columns = (np.ascontiguousarray(identities[:, at]) for at in range(len(_IDENTITY)))
    return ranks, IdentityTable(*columns)


def build_collectives(ready: ReadySteps) -> CollectiveTable:
    """Return the collectives, rank after rank, in the order in which they began."""
    rows = ready.collectives
    # Those that the device timed have no times of the host, but numbers in their group.
    order = np.lexsort((rows["seq"], rows["start_ns"], ready.collective_row, rows["rank"]))
    return CollectiveTable(
        ready.collective_row[order],
        *(rows[field.name][order] for field in fields(CollectiveTable)[1:]),
    )


def build_phases(ready: ReadySteps) -> PhaseTable:
    """Return the phases, rank after rank."""
    order = np.lexsort((ready.phase_row, ready.phases["rank"]))
    return PhaseTable(
        ready.phase_row[order],
        *(ready.phases[field.name][order] for field in fields(PhaseTable)[1:]),
    )


def _fill_waits(ranks: Rows, step_row: U32, collectives: CollectiveTable) -> U64:
    """Return each rank's wait: what its hook told, else the sum over its collectives."""
    waits: U64 = ranks["wait_ns"].copy()
    unknown = np.flatnonzero(waits == UNKNOWN)
    if not len(collectives) or not len(unknown):
        return waits
    places, own = np.unique(_join_keys(collectives.step_row, collectives.rank), return_inverse=True)
    spent = measure_waits(collectives)
    sums = np.zeros(len(places), dtype=np.uint64)
    np.add.at(sums, own.ravel(), spent)
    sums[own.ravel()[spent == UNKNOWN]] = UNKNOWN
    wanted = _join_keys(step_row[unknown], ranks["rank"][unknown])
    at = np.minimum(np.searchsorted(places, wanted), len(places) - 1)
    is_known = places[at] == wanted
    waits[unknown[is_known]] = sums[at[is_known]]
    return waits


def measure_waits(collectives: CollectiveTable) -> U64:
    """Return the time in each collective, by the device where it told, else by the host; or UNKNOWN."""
    spent = np.maximum(collectives.end_ns, collectives.start_ns) - collectives.start_ns
    by_host = np.where(collectives.end_ns == UNKNOWN, UNKNOWN, spent)
    return np.where(collectives.device_ns == UNKNOWN, by_host, collectives.device_ns)


def _join_keys(step_row: U32, rank: U32) -> U64:
    return step_row.astype(np.uint64) << np.uint64(32) | rank
