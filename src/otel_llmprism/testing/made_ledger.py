# A ledger without an engine: decode and prefill steps that cost what a plain law says, noise by seed, slowed
# where asked. A public fake for tests and benchmarks of what reads ledgers; knows no analysis.
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from otel_llmprism.exporters.ledger_chunks import encode_chunk
from otel_llmprism.exporters.otlp_logs import LedgerRecord, encode_ledger_records
from otel_llmprism.model import steps as model
from otel_llmprism.model.steps import LedgerTables, StepTable
from otel_llmprism.native.ledger_layout import VERSION, ChunkAnchor, parse_anchor
from otel_llmprism.native.ring_records import StepKind, derive_request_handle
from otel_llmprism.receivers.ledger import LedgerBatch, LedgerSource
from otel_llmprism.receivers.ledger_tables import build_chunk_table
from otel_llmprism.semconv import resource as names
from otel_llmprism.semconv.ledger import EVENT_LEDGER

AnyTable = TypeVar("AnyTable", bound=model.Table)
START_REAL_NS = 1_700_000_000_000_000_000
START_NS = 5_000_000_000_000
CHUNK_NS = 500_000_000
SOURCE = LedgerSource("made-engine", "ab" * 16, "node-0")
_TABLES: Mapping[str, type[model.Table]] = {
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
}


@dataclass(frozen=True, slots=True)
class Slow:
    """Steps that begin in [from_s, until_s) of the ledger take `factor` times as long."""

    from_s: float
    until_s: float
    factor: float


@dataclass(frozen=True, slots=True)
class MadeLedger:
    source: LedgerSource = SOURCE
    seconds: float = 60.0
    seed: int = 0
    noise: float = 0.03
    slow: tuple[Slow, ...] = ()
    base_ns: float = 8e6
    first_step: int = 0
    start_s: float = 0.0

    def make_steps(self) -> StepTable:
        """Return all steps, one after the other without a gap."""
        random = np.random.default_rng(self.seed)
        count = int(self.seconds * 1e9 / self.base_ns * 1.2) + 10
        requests = np.clip(16 + np.cumsum(random.integers(-1, 2, count)) // 4, 2, 48)
        is_prefill = random.random(count) < 0.1
        prefill = np.where(is_prefill, random.integers(64, 1024, count), 0)
        kv = requests * random.integers(400, 900, count) + prefill
        cost = self.base_ns * (0.6 + 0.01 * requests + 4e-6 * kv + 5e-4 * prefill)
        cost *= np.exp(random.normal(0, self.noise, count))
        begin_ns = START_NS + self.start_s * 1e9
        ends = begin_ns + np.cumsum(self._slow_down(cost, begin_ns))
        last = int(np.searchsorted(ends, begin_ns + self.seconds * 1e9))
        return self._build(ends[:last], begin_ns, requests[:last], prefill[:last], kv[:last])

    def cut_chunks(self) -> Iterator[tuple[LedgerTables, ChunkAnchor]]:
        """Yield chunks of half a second, as an exporter ships them."""
        steps = self.make_steps()
        numbers = (steps.output_ready_ns - np.uint64(START_NS)) // np.uint64(CHUNK_NS)
        for number in np.unique(numbers).tolist():
            rows = np.flatnonzero(numbers == number)
            own = StepTable(*(getattr(steps, field.name)[rows] for field in fields(StepTable)))
            at_ns = START_NS + (number + 1) * CHUNK_NS
            place = (int(own.step[0]), int(own.step[-1]))
            yield wrap_steps(own), ChunkAnchor(*place, at_ns, START_REAL_NS + at_ns - START_NS)

    def list_batches(self) -> Iterator[tuple[LedgerBatch, int]]:
        """Yield each chunk as the ledger reader gives it, with the real time at which it arrives."""
        for seq, (tables, anchor) in enumerate(self.cut_chunks()):
            rows = [len(tables.steps), *([0] * 20)]
            chunks = build_chunk_table([seq], [anchor], [tuple(rows)])
            yield LedgerBatch(self.source, chunks, tables), anchor.anchor_realtime_ns + 50_000_000

    def list_requests(self, resource: Mapping[str, str] | None = None) -> Iterator[bytes]:
        """Yield each chunk as the OTLP request that an exporter sends."""
        own = {names.ENGINE_ID: self.source.engine_id, names.ENGINE_RUN: self.source.run, **(resource or {})}
        for seq, (tables, anchor) in enumerate(self.cut_chunks()):
            body = encode_chunk(tables, anchor)
            record = LedgerRecord(
                EVENT_LEDGER,
                body,
                VERSION,
                self.source.node,
                seq + self.first_step,
                parse_anchor(body).anchor_realtime_ns,
            )
            yield encode_ledger_records(own, [record])

    def _slow_down(self, cost: "np.typing.NDArray[np.float64]", begin_ns: float) -> "np.typing.NDArray[Any]":
        for slow in self.slow:
            starts = begin_ns + np.cumsum(cost) - cost - START_NS
            hit = (starts >= slow.from_s * 1e9) & (starts < slow.until_s * 1e9)
            cost = np.where(hit, cost * slow.factor, cost)
        return cost

    def _build(
        self,
        ends: "np.typing.NDArray[np.float64]",
        begin_ns: float,
        requests: "np.typing.NDArray[Any]",
        prefill: "np.typing.NDArray[Any]",
        kv: "np.typing.NDArray[Any]",
    ) -> StepTable:
        count = len(ends)
        ready = ends.astype(np.uint64)
        starts = np.concatenate([[np.uint64(begin_ns)], ready[:-1]])
        told: dict[str, Any] = {
            "step": np.arange(self.first_step, self.first_step + count),
            "schedule_start_ns": starts,
            "schedule_end_ns": starts + np.uint64(1000),
            "output_ready_ns": ready,
            "cycle_ns": ready - starts,
            "kept_probability": np.full(count, 0.01),
            "kv_tokens": kv,
            "requests": requests,
            "running": requests,
            "prefill_tokens": prefill,
            "decode_tokens": requests,
            "kind": np.where(prefill > 0, StepKind.MIXED, StepKind.DECODE),
            "graph_mode": np.full(count, 3),
            "mode": np.ones(count),
        }
        empty = np.zeros(count)
        columns = (
            np.asarray(told.get(field.name, empty)).astype(_find_dtype(field)) for field in fields(StepTable)
        )
        return StepTable(*columns)


def wrap_steps(steps: StepTable) -> LedgerTables:
    """Return ledger tables with these steps and nothing else."""
    empty: dict[str, Any] = {name: make_empty(table) for name, table in _TABLES.items()}
    return LedgerTables(steps=steps, text=np.zeros(0, np.uint8), **empty)


def make_empty(table: type[AnyTable]) -> AnyTable:
    """Return a table of this type without rows."""
    return table(*(np.zeros(0, _find_dtype(field)) for field in fields(table)))


def add_request(
    tables: LedgerTables, request_id: str, times_ns: tuple[int, int, int], span: tuple[bytes, bytes]
) -> LedgerTables:
    """Return the tables with one sampled request: arrived, scheduled and ended then, under this span."""
    arrived, scheduled, ended = times_ns
    handle = np.array([derive_request_handle(request_id)], np.uint64)
    trace_id, span_id = span
    raw = request_id.encode()
    words = np.frombuffer(trace_id + span_id, "<u8")
    arrivals = model.ArrivalTable(
        handle, _u64(arrived), words[0:1], words[1:2], words[2:3], _u64(0),
        np.array([1], np.uint8), np.array([len(raw)], np.uint16),
        np.zeros(1, np.uint16), np.zeros(1, np.uint16),
    )  # fmt: skip
    events = model.EventTable(
        np.repeat(handle, 2),
        np.array([scheduled, scheduled + 1], np.uint64),
        np.zeros(2, np.uint64),
        np.zeros(2, np.uint32),
        np.array([2, 3], np.uint8),
    )
    one = np.ones(1, np.uint32)
    count = np.array([len(tables.steps)], np.uint32)
    ends = model.EndTable(
        handle, _u64(ended), one, one, one, count, 0 * one, np.ones(1, np.uint8), np.zeros(1, np.uint8)
    )
    running = model.RunningTable(np.zeros(1, np.uint32), handle)
    text = np.frombuffer(raw, np.uint8)
    return replace(tables, arrivals=arrivals, events=events, ends=ends, running=running, text=text)


def _u64(value: int) -> model.U64:
    return np.array([value], np.uint64)


def _find_dtype(field: "Field[Any]") -> "np.dtype[Any]":
    # The aliases of model.steps are npt.NDArray[...]: ndarray[shape, dtype[scalar]].
    scalar = field.type.__args__[1].__args__[0]  # type: ignore[union-attr]
    kind: np.dtype[Any] = np.dtype(scalar)
    return kind
