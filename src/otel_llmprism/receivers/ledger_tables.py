# Decoded ledger columns (bytes) -> tables. One place that maps the schema to model/steps.py.
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np

from otel_llmprism.model import steps as model
from otel_llmprism.model.hosts import HostTables, SampleTable, SeriesTable
from otel_llmprism.native.ledger_layout import ChunkAnchor
from otel_llmprism.native.ledger_schema import COLUMNS
from otel_llmprism.native.ledger_schema import Table as TableId

AnyTable = TypeVar("AnyTable", bound=model.Table)
_DTYPES: dict[str, np.dtype[np.generic]] = {column.key: np.dtype(column.dtype) for column in COLUMNS}

_NAMES: dict[str, type[model.Table]] = {
    "steps": model.StepTable,
    "identities": model.IdentityTable,
    "ranks": model.RankTable,
    "members": model.MemberTable,
    "running": model.RunningTable,
    "arrivals": model.ArrivalTable,
    "events": model.EventTable,
    "ends": model.EndTable,
    "pauses": model.PauseTable,
    "collectives": model.CollectiveTable,
    "phases": model.PhaseTable,
    "series": SeriesTable,
    "samples": SampleTable,
}
# The columns of each table in the order of its fields; asked for with every chunk, so worked out once.
_COLUMNS_OF = {
    table: [(key, _DTYPES[key]) for key in (f"{name}.{field.name}" for field in fields(table))]
    for name, table in _NAMES.items()
}
# Most chunks have several tables without rows: wrapping their columns would cost as much as the others'.
_EMPTY: dict[type[model.Table], Any] = {
    table: table(*[np.zeros(0, dtype) for _, dtype in columns]) for table, columns in _COLUMNS_OF.items()
}


def wrap_columns(columns: Mapping[str, memoryview]) -> model.LedgerTables:
    """Wrap without copying; the tables keep the decoded buffer alive."""
    return model.LedgerTables(
        steps=_wrap(model.StepTable, columns),
        identities=_wrap(model.IdentityTable, columns),
        ranks=_wrap(model.RankTable, columns),
        members=_wrap(model.MemberTable, columns),
        running=_wrap(model.RunningTable, columns),
        arrivals=_wrap(model.ArrivalTable, columns),
        events=_wrap(model.EventTable, columns),
        ends=_wrap(model.EndTable, columns),
        text=np.frombuffer(columns["text.text"], dtype=np.uint8),
        pauses=_wrap(model.PauseTable, columns),
        collectives=_wrap(model.CollectiveTable, columns),
        phases=_wrap(model.PhaseTable, columns),
    )


def wrap_host_columns(columns: Mapping[str, memoryview]) -> HostTables:
    """Likewise for host samples."""
    return HostTables(
        series=_wrap(SeriesTable, columns),
        samples=_wrap(SampleTable, columns),
        names=np.frombuffer(columns["names.names"], dtype=np.uint8),
    )


def build_chunk_table(
    seqs: Sequence[int], anchors: Sequence[ChunkAnchor], rows: Sequence[tuple[int, ...]]
) -> model.ChunkTable:
    """Say where each chunk begins; `rows` are its row counts by table."""

    def count_before(table: TableId) -> model.U32:
        sums = accumulate((own[table] for own in rows), initial=0)
        return np.array([*sums][:-1], dtype=np.uint32)

    return model.ChunkTable(
        seq=np.array(seqs, dtype=np.uint64),
        anchor_monotonic_ns=np.array([anchor.anchor_monotonic_ns for anchor in anchors], dtype=np.uint64),
        anchor_realtime_ns=np.array([anchor.anchor_realtime_ns for anchor in anchors], dtype=np.uint64),
        first_step_row=count_before(TableId.STEPS),
        first_member_row=count_before(TableId.MEMBERS),
        first_running_row=count_before(TableId.RUNNING),
        first_arrival_row=count_before(TableId.ARRIVALS),
        first_text_row=count_before(TableId.TEXT),
    )


def _wrap(table: type[AnyTable], columns: Mapping[str, memoryview]) -> AnyTable:
    if not columns[_COLUMNS_OF[table][0][0]]:
        empty: AnyTable = _EMPTY[table]
        return empty
    return table(*[np.frombuffer(columns[key], dtype) for key, dtype in _COLUMNS_OF[table]])
