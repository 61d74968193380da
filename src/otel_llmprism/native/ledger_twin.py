# The ledger decoder without libllmprism: same checks in the same order, same columns, pure Python.
# Whole columns at a time (slices, accumulate), since a loop per byte would be a hundred times slower.
import struct
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, repeat
from operator import add

from otel_llmprism.native import ledger_layout as layout
from otel_llmprism.native.ledger_layout import Status
from otel_llmprism.native.ledger_schema import COLUMNS, INDEX_OF, UNKNOWN, Column, Reference, Table

_TYPECODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
_POSITION_OF_ID = {column.id: position for position, column in enumerate(COLUMNS)}
_TABLE_COUNT = len(Table)

Numbers = list[int]
Result = tuple[list[int], list[tuple[int, ...]], list[tuple[int, Status]], dict[str, memoryview]]


@dataclass(frozen=True, slots=True)
class _Packed:
    mode: int
    width: int
    base: int
    first: int
    start: int


class _BadChunkError(Exception):
    def __init__(self, status: Status) -> None:
        super().__init__(status)
        self.status = status


def decode_chunks(chunks: Sequence[bytes]) -> Result:
    """Return accepted positions, their rows, refused positions with why, and the shared columns."""
    accepted, all_rows, refused = [], [], []
    outputs = [array(_TYPECODES[column.item_bytes]) for column in COLUMNS]
    totals = [0] * _TABLE_COUNT
    for position, chunk in enumerate(chunks):
        try:
            rows, packed = _parse_chunk(chunk)
            decoded = _decode_columns(chunk, rows, packed, totals)
        except _BadChunkError as error:
            refused.append((position, error.status))
            continue
        for column, output, numbers in zip(COLUMNS, outputs, decoded, strict=True):
            mask = (1 << 8 * column.item_bytes) - 1
            output.extend(numbers if mask == UNKNOWN else [number & mask for number in numbers])
        totals = [*map(add, totals, rows)]
        accepted.append(position)
        all_rows.append(rows)
    columns = {
        column.key: memoryview(output.tobytes()) for column, output in zip(COLUMNS, outputs, strict=True)
    }
    return accepted, all_rows, refused, columns


def _parse_chunk(chunk: bytes) -> tuple[tuple[int, ...], dict[int, _Packed]]:
    size = len(chunk)
    if size < layout.CHUNK_HEADER.size:
        raise _BadChunkError(Status.TRUNCATED)
    if size > layout.MAX_CHUNK_BYTES:
        raise _BadChunkError(Status.TOO_MANY_ROWS)
    magic, version, revision, tables, columns, _, total, *_ = layout.CHUNK_HEADER.unpack_from(chunk)
    if magic != layout.MAGIC:
        raise _BadChunkError(Status.FOREIGN)
    if (version, revision) > (layout.VERSION, layout.REVISION):
        raise _BadChunkError(Status.NEWER)
    if (version, revision) not in {(layout.VERSION, layout.REVISION), layout.BEFORE}:
        raise _BadChunkError(Status.TOO_OLD)
    if total != size:
        raise _BadChunkError(Status.TRUNCATED if total > size else Status.TRAILING_BYTES)
    if tables > _TABLE_COUNT:
        raise _BadChunkError(Status.BAD_COLUMN)
    at = layout.CHUNK_HEADER.size
    if size - at < 4 * tables:
        raise _BadChunkError(Status.TRUNCATED)
    rows = struct.unpack_from(f"<{tables}I", chunk, at) + (0,) * (_TABLE_COUNT - tables)
    if sum(rows) > layout.FREE_ROWS + size:
        raise _BadChunkError(Status.TOO_MANY_ROWS)
    return rows, _parse_columns(chunk, at + 4 * tables, columns, rows)


def _parse_columns(chunk: bytes, at: int, count: int, rows: tuple[int, ...]) -> dict[int, _Packed]:
    found: dict[int, _Packed] = {}
    for _ in range(count):
        if len(chunk) - at < layout.COLUMN_HEADER.size:
            raise _BadChunkError(Status.TRUNCATED)
        column_id, mode, width, _, base, first = layout.COLUMN_HEADER.unpack_from(chunk, at)
        at += layout.COLUMN_HEADER.size
        position = _POSITION_OF_ID.get(column_id)
        if position is None or width > 8 or mode & ~(layout.MODE_DELTA | layout.MODE_RELATIVE):
            raise _BadChunkError(Status.BAD_COLUMN)
        end = at + rows[COLUMNS[position].table] * width
        if end > len(chunk):
            raise _BadChunkError(Status.TRUNCATED)
        if position in found:
            raise _BadChunkError(Status.BAD_COLUMN)
        found[position] = _Packed(mode, width, base, first, at)
        at = end
    if at != len(chunk):
        raise _BadChunkError(Status.TRAILING_BYTES)
    return found


def _decode_columns(
    chunk: bytes, rows: tuple[int, ...], packed: dict[int, _Packed], before: list[int]
) -> list[Numbers]:
    local: list[Numbers] = []  # row numbers still count within the chunk
    decoded: list[Numbers] = []
    for position, column in enumerate(COLUMNS):
        found, count = packed.get(position), rows[column.table]
        if count == 0:
            numbers: Numbers = []
        elif found is not None:
            numbers = _resolve(
                column, found.mode, _add_base(_unpack(chunk, found, count), found), rows, local
            )
        elif column.reference in {Reference.INDEX, Reference.LOOKUP}:
            raise _BadChunkError(Status.BAD_INDEX)
        else:
            numbers = [column.default] * count
        local.append(numbers)
        if column.reference is Reference.INDEX:
            first = before[Table[column.target.upper()]]
            numbers = [number + first for number in numbers] if first else numbers
        decoded.append(numbers)
    return decoded


def _resolve(
    column: Column, mode: int, numbers: Numbers, rows: tuple[int, ...], local: list[Numbers]
) -> Numbers:
    if column.reference is Reference.INDEX:
        return _check_rows(numbers, rows[Table[column.target.upper()]])
    if column.reference is Reference.LOOKUP:
        values = local[INDEX_OF[column.target]]
        return [values[number] for number in _check_rows(numbers, len(values))]
    if column.reference is Reference.NONE or not mode & layout.MODE_RELATIVE:
        return [number - 1 & UNKNOWN for number in numbers] if column.is_optional else numbers
    pairs = zip(numbers, _find_origins(column, local), strict=True)
    if column.is_optional:
        return [number - 1 + origin & UNKNOWN if number else UNKNOWN for number, origin in pairs]
    return [number + origin & UNKNOWN for number, origin in pairs]


def _unpack(chunk: bytes, packed: _Packed, count: int) -> Sequence[int]:
    width = packed.width
    if width == 0:
        return [0] * count
    raw = chunk[packed.start : packed.start + width * count]
    spread = bytearray(8 * count)
    for byte in range(width):
        spread[byte::8] = raw[byte::width]
    return memoryview(bytes(spread)).cast("Q")


def _add_base(numbers: Sequence[int], packed: _Packed) -> Numbers:
    base = packed.base
    if packed.mode & layout.MODE_DELTA:
        sums = accumulate(map(add, numbers, repeat(base)), initial=packed.first)
        next(sums)
        return [number & UNKNOWN for number in sums]
    return [number + base & UNKNOWN for number in numbers] if base else list(numbers)


def _check_rows(numbers: Numbers, rows: int) -> Numbers:
    if max(numbers) >= rows:
        raise _BadChunkError(Status.BAD_INDEX)
    return numbers


def _find_origins(column: Column, local: list[Numbers]) -> Numbers:
    target = local[INDEX_OF[column.target]]
    if column.reference is Reference.SAME_ROW:
        return target
    return [target[row] for row in local[INDEX_OF[column.via]]]
