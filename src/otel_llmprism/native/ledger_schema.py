# The columns of a ledger chunk: one table drives encoder, native decoder and twin, so that they cannot
# disagree. Ids on the wire are for ever; a new column takes a new id and a default for older chunks.
import struct
from dataclasses import dataclass
from enum import IntEnum

UNKNOWN = (1 << 64) - 1


class Table(IntEnum):  # position in the chunk's row counts; new ones at the end
    STEPS = 0
    IDENTITIES = 1
    RANKS = 2
    HANDLES = 3  # of requests and of process groups
    MEMBERS = 4
    RUNNING = 5
    ARRIVALS = 6
    EVENTS = 7
    ENDS = 8
    TEXT = 9
    PAUSES = 10
    SERIES = 11  # these three: chunks of host samples
    SAMPLES = 12
    NAMES = 13
    COLLECTIVES = 14
    PHASES = 15


class Reference(IntEnum):
    """What a column's numbers are relative to, so that they become small."""

    NONE = 0
    SAME_ROW = 1  # plus `target` in the same row
    VIA_ROW = 2  # plus `target` in the row that `via` names
    INDEX = 3  # a row of table `target` in this chunk; decoded to a row of all chunks decoded together
    LOOKUP = 4  # the value of `target` in the row that this number names


@dataclass(frozen=True, slots=True)
class Column:
    id: int
    table: Table
    name: str
    dtype: str  # as numpy spells it, little-endian
    reference: Reference = Reference.NONE
    target: str = ""  # "table.name"; for INDEX a table's name
    via: str = ""
    is_optional: bool = False  # UNKNOWN may occur and must stay cheap
    default: int = 0  # in chunks written before the column existed; for an optional one UNKNOWN

    @property
    def key(self) -> str:
        return f"{self.table.name.lower()}.{self.name}"

    @property
    def item_bytes(self) -> int:
        return int(self.dtype[-1])


_C, _P = Table.COLLECTIVES, Table.PHASES
_S, _R, _M = Table.STEPS, Table.RANKS, Table.MEMBERS
_A, _E, _D = Table.ARRIVALS, Table.EVENTS, Table.ENDS
_START = "steps.schedule_start_ns"

# A column stands after those it refers to.
COLUMNS: tuple[Column, ...] = (
    Column(1, _S, "step", "<u8"),
    Column(2, _S, "schedule_start_ns", "<u8"),
    Column(3, _S, "schedule_end_ns", "<u8", Reference.SAME_ROW, _START),
    Column(4, _S, "output_ready_ns", "<u8", Reference.SAME_ROW, _START, is_optional=True, default=UNKNOWN),
    Column(5, _S, "cycle_ns", "<u8", is_optional=True, default=UNKNOWN),
    Column(6, _S, "execute_ns", "<u8", is_optional=True, default=UNKNOWN),
    Column(7, _S, "sample_ns", "<u8", is_optional=True, default=UNKNOWN),
    Column(8, _S, "output_ns", "<u8", is_optional=True, default=UNKNOWN),
    Column(9, _S, "gap_ns", "<u8", is_optional=True, default=UNKNOWN),
    Column(10, _S, "kept_probability", "<f8"),
    Column(11, _S, "kv_tokens", "<u8"),
    Column(12, _S, "requests", "<u4"),
    Column(13, _S, "prefill_tokens", "<u4"),
    Column(14, _S, "decode_tokens", "<u4"),
    Column(15, _S, "waiting", "<u4"),
    Column(16, _S, "running", "<u4"),
    Column(17, _S, "preemptions", "<u4"),
    Column(18, _S, "kv_usage", "<f4"),
    Column(19, _S, "kind", "|u1"),
    Column(20, _S, "kept", "|u1"),
    Column(21, _S, "graph_mode", "|u1"),
    Column(22, _S, "mode", "|u1"),
    Column(23, _S, "lane", "<u2"),
    Column(24, _S, "flags", "|u1"),
    Column(30, Table.IDENTITIES, "rank", "<u4"),
    Column(31, Table.IDENTITIES, "tp", "<u4"),
    Column(32, Table.IDENTITIES, "pp", "<u4"),
    Column(33, Table.IDENTITIES, "dp", "<u4"),
    Column(34, Table.IDENTITIES, "cp", "<u4"),
    Column(35, Table.IDENTITIES, "ep", "<u4"),
    Column(40, _R, "step_row", "<u4", Reference.INDEX, "steps"),
    Column(41, _R, "identity_row", "<u4", Reference.INDEX, "identities"),
    Column(42, _R, "start_ns", "<u8", Reference.VIA_ROW, _START, "ranks.step_row"),
    Column(43, _R, "end_ns", "<u8", Reference.SAME_ROW, "ranks.start_ns"),
    Column(44, _R, "device_ns", "<u8", is_optional=True, default=UNKNOWN),
    Column(45, _R, "wait_ns", "<u8", is_optional=True, default=UNKNOWN),
    Column(50, Table.HANDLES, "handle", "<u8"),
    Column(60, _M, "step_row", "<u4", Reference.INDEX, "steps"),
    Column(61, _M, "change", "|u1"),
    Column(62, _M, "is_prefill", "|u1"),
    Column(63, _M, "slot", "<u4"),
    Column(64, _M, "tokens", "<u4"),
    Column(65, _M, "handle", "<u8", Reference.LOOKUP, "handles.handle"),
    Column(70, Table.RUNNING, "slot", "<u4"),
    Column(71, Table.RUNNING, "handle", "<u8", Reference.LOOKUP, "handles.handle"),
    Column(80, _A, "handle", "<u8", Reference.LOOKUP, "handles.handle"),
    Column(81, _A, "arrival_ns", "<u8"),
    Column(82, _A, "trace_id_high", "<u8"),
    Column(83, _A, "trace_id_low", "<u8"),
    Column(84, _A, "span_id", "<u8"),
    Column(85, _A, "parent_span_id", "<u8"),
    Column(86, _A, "flags", "|u1"),
    Column(87, _A, "request_id_bytes", "<u2"),
    Column(88, _A, "external_shared_bytes", "<u2"),
    Column(89, _A, "external_rest_bytes", "<u2"),
    Column(90, _E, "handle", "<u8", Reference.LOOKUP, "handles.handle"),
    Column(91, _E, "time_ns", "<u8"),
    Column(92, _E, "step", "<u8", is_optional=True, default=UNKNOWN),
    Column(93, _E, "tokens", "<u4"),
    Column(94, _E, "event", "|u1"),
    Column(100, _D, "handle", "<u8", Reference.LOOKUP, "handles.handle"),
    Column(101, _D, "time_ns", "<u8"),
    Column(102, _D, "prompt_tokens", "<u4"),
    Column(103, _D, "output_tokens", "<u4"),
    Column(104, _D, "cached_tokens", "<u4"),
    Column(105, _D, "steps", "<u4"),
    Column(106, _D, "preemptions", "<u4"),
    Column(107, _D, "finish", "|u1"),
    Column(108, _D, "error", "|u1"),
    Column(110, Table.TEXT, "text", "|u1"),
    Column(120, Table.PAUSES, "start_ns", "<u8"),
    Column(121, Table.PAUSES, "end_ns", "<u8", is_optional=True, default=UNKNOWN),
    Column(122, Table.PAUSES, "reason", "|u1"),
    Column(130, Table.SERIES, "pid", "<u4"),
    Column(131, Table.SERIES, "rank", "<u4"),
    Column(132, Table.SERIES, "name_bytes", "<u2"),
    Column(140, Table.SAMPLES, "series_row", "<u4", Reference.INDEX, "series"),
    Column(141, Table.SAMPLES, "time_ns", "<u8"),
    Column(142, Table.SAMPLES, "value", "<f8"),
    Column(150, Table.NAMES, "names", "|u1"),
    Column(160, _C, "step_row", "<u4", Reference.INDEX, "steps"),
    Column(161, _C, "rank", "<u4"),
    Column(162, _C, "group", "<u8", Reference.LOOKUP, "handles.handle"),
    Column(163, _C, "seq", "<u4"),
    Column(164, _C, "op", "|u1"),
    Column(165, _C, "bytes", "<u8"),
    Column(
        166,
        _C,
        "start_ns",
        "<u8",
        Reference.VIA_ROW,
        _START,
        "collectives.step_row",
        is_optional=True,
        default=UNKNOWN,
    ),
    Column(
        167,
        _C,
        "end_ns",
        "<u8",
        Reference.SAME_ROW,
        "collectives.start_ns",
        is_optional=True,
        default=UNKNOWN,
    ),
    Column(168, _C, "device_ns", "<u8", is_optional=True, default=UNKNOWN),
    Column(170, _P, "step_row", "<u4", Reference.INDEX, "steps"),
    Column(171, _P, "rank", "<u4"),
    Column(172, _P, "iteration", "<u8", is_optional=True, default=UNKNOWN),
    Column(173, _P, "forward_ns", "<u8", is_optional=True, default=UNKNOWN),
    Column(174, _P, "backward_ns", "<u8", is_optional=True, default=UNKNOWN),
    Column(175, _P, "optimizer_ns", "<u8", is_optional=True, default=UNKNOWN),
    Column(176, _P, "data_ns", "<u8", is_optional=True, default=UNKNOWN),
    Column(177, _P, "micro_batches", "<u4"),
)

INDEX_OF = {column.key: index for index, column in enumerate(COLUMNS)}
_SPEC = struct.Struct("<HBBBBHHHIQ")


def pack_schema() -> bytes:
    """Return COLUMNS as the native decoder takes them (ColumnSpec in llmprism/ledger.h)."""
    return b"".join(_pack_column(column) for column in COLUMNS)


def _pack_column(column: Column) -> bytes:
    is_index = column.reference is Reference.INDEX
    target = Table[column.target.upper()] if is_index else INDEX_OF.get(column.target, 0)
    return _SPEC.pack(
        column.id,
        column.table,
        column.item_bytes,
        column.reference,
        column.is_optional,
        target,
        INDEX_OF.get(column.via, 0),
        0,
        0,
        column.default,
    )
