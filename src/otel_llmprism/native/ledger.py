# Ledger chunks (bytes from anywhere) -> columns as bytes, native when libllmprism is there, else the twin
# with the same result. Who wraps the columns as tables is receivers/ledger.py.
import ctypes
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from otel_llmprism.native import ledger_twin
from otel_llmprism.native.ledger_layout import Status
from otel_llmprism.native.ledger_schema import COLUMNS, Table, pack_schema
from otel_llmprism.native.library import load_library

_TABLE_COUNT = len(Table)
# Asked for with every chunk that arrives alone, so worked out once.
_NO_ROWS = memoryview(b"")
_PLACES = [(column.key, int(column.table), column.item_bytes) for column in COLUMNS]


@dataclass(frozen=True, slots=True)
class DecodedChunks:
    accepted: list[int]  # positions of the chunks whose rows follow each other in the columns
    rows: list[tuple[int, ...]]  # of each accepted chunk, by Table
    refused: list[tuple[int, Status]]
    columns: dict[str, memoryview]  # "table.name" -> bytes, in the dtype of ledger_schema.COLUMNS


def decode_chunks(chunks: Sequence[bytes]) -> DecodedChunks:
    """Decode chunks into columns they share; a chunk that is wrong in any way is refused whole.

    Never raises over content. Memory is bounded by rows: FREE_ROWS and one for each byte of a chunk.
    """
    library = _load_functions()
    if library is None:
        return DecodedChunks(*ledger_twin.decode_chunks(chunks))
    refused: list[tuple[int, Status]] = []
    positions = list(range(len(chunks)))
    while True:
        status, rows, columns = _decode_native(library, [chunks[position] for position in positions])
        refused += [(position, Status(s)) for position, s in zip(positions, status, strict=True) if s]
        good = [position for position, s in zip(positions, status, strict=True) if not s]
        if Status.BAD_INDEX not in status:
            kept = [own for own, s in zip(rows, status, strict=True) if not s]
            return DecodedChunks(good, kept, sorted(refused), columns)
        positions = good  # rows of a chunk that failed late lie among the others': decode again without


def _decode_native(
    library: ctypes.CDLL, chunks: Sequence[bytes]
) -> tuple[list[int], list[tuple[int, ...]], dict[str, memoryview]]:
    count = len(chunks)
    offsets = array("Q", accumulate((len(chunk) for chunk in chunks), initial=0))
    schema = pack_schema_once()
    rows = (ctypes.c_uint32 * (count * _TABLE_COUNT))()
    status = (ctypes.c_uint8 * count)()
    inputs = (b"".join(chunks), _address(offsets), count, schema, len(COLUMNS), _TABLE_COUNT)
    if library.llmprism_ledger_measure(*inputs, rows, status) != 0:
        raise RuntimeError("libllmprism and the Python package disagree about the ledger; reinstall both")
    flat = list(rows)
    by_chunk = [tuple(flat[at : at + _TABLE_COUNT]) for at in range(0, len(flat), _TABLE_COUNT)]
    totals = [sum(flat[table::_TABLE_COUNT]) for table in range(_TABLE_COUNT)]
    # Every column starts at a multiple of 8.
    sizes = [totals[table] * item_bytes + 7 & ~7 for _, table, item_bytes in _PLACES]
    starts = array("Q", accumulate(sizes, initial=0))
    out = bytearray(starts[-1] or 8)
    pointer = (ctypes.c_uint8 * len(out)).from_buffer(out)
    if library.llmprism_ledger_decode(*inputs, rows, status, _address(starts), pointer) != 0:
        raise RuntimeError("libllmprism and the Python package disagree about the ledger; reinstall both")
    view = memoryview(out)
    columns = {
        key: view[start : start + totals[table] * item_bytes] if totals[table] else _NO_ROWS
        for (key, table, item_bytes), start in zip(_PLACES, starts, strict=False)
    }
    return list(status), by_chunk, columns


@cache
def pack_schema_once() -> bytes:
    return pack_schema()


@cache
def _load_functions() -> ctypes.CDLL | None:
    library = load_library()
    if library is None or not hasattr(library, "llmprism_ledger_decode"):
        return None
    pointer, u32 = ctypes.c_void_p, ctypes.c_uint32
    inputs = (ctypes.c_char_p, pointer, u32, ctypes.c_char_p, u32, u32)
    library.llmprism_ledger_measure.argtypes = (*inputs, pointer, pointer)
    library.llmprism_ledger_decode.argtypes = (*inputs, pointer, pointer, pointer, pointer)
    library.llmprism_ledger_measure.restype = ctypes.c_int32
    library.llmprism_ledger_decode.restype = ctypes.c_int32
    return library


def _address(numbers: "array[int]") -> int:
    return numbers.buffer_info()[0]
