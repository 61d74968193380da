# Any tables come back exactly, from the native decoder and from its twin, and any bytes are refused alike.
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_llmprism.exporters.ledger_chunks import encode_chunk, list_values
from otel_llmprism.model import steps as model
from otel_llmprism.native import ledger, ledger_twin
from otel_llmprism.native.ledger_layout import ChunkAnchor, Status, pack_chunk
from otel_llmprism.native.ledger_schema import COLUMNS, Reference, Table
from otel_llmprism.receivers.ledger_tables import wrap_columns

ANCHOR = ChunkAnchor(3, 9, 1000, 2000)
EMPTY = pack_chunk(ANCHOR, [0] * len(Table), [])


def draw_column(rng: np.random.Generator, dtype: np.dtype, rows: int) -> np.ndarray:
    top = (1 << 8 * dtype.itemsize) - 1
    spread = int(rng.choice([0, 3, 300, 70_000, 1 << 40, top])) & top
    base = int(rng.integers(0, top - spread, dtype=np.uint64, endpoint=True))
    numbers = rng.integers(0, spread, rows, dtype=np.uint64, endpoint=True) + np.uint64(base)
    if rng.random() < 0.3:
        numbers.sort()
    if rng.random() < 0.3:
        numbers[rng.random(rows) < 0.2] = top
    return numbers.astype(f"<u{dtype.itemsize}").view(dtype)


def draw_tables(seed: int) -> model.LedgerTables:
    rng = np.random.default_rng(seed)
    rows = {table: int(rng.choice([0, 1, 2, 60])) for table in Table}
    columns: dict[str, memoryview] = {}
    for column in COLUMNS:
        count = rows[column.table]
        if column.reference is Reference.INDEX:
            targets = rows[Table[column.target.upper()]]
            rows[column.table] = count = count if targets else 0
            drawn = rng.integers(0, max(targets, 1), count).astype(np.uint32)
        else:
            drawn = draw_column(rng, np.dtype(column.dtype), count)
        columns[column.key] = memoryview(drawn.tobytes())
    for column in COLUMNS:  # a table that lost its rows lost them in every column
        kept = rows[column.table] * column.item_bytes
        columns[column.key] = columns[column.key][:kept]
    return wrap_columns(columns)


def assert_same(tables: model.LedgerTables, columns: dict[str, memoryview]) -> None:
    decoded = list_values(wrap_columns(columns))
    for key, values in list_values(tables).items():
        np.testing.assert_array_equal(decoded[key], values, err_msg=key)


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 2**32))
def test_any_tables_come_back_exactly_from_decoder_and_twin(seed: int) -> None:
    tables = draw_tables(seed)
    chunk = encode_chunk(tables, ANCHOR)
    decoded = ledger.decode_chunks([chunk])
    assert decoded.refused == []
    assert_same(tables, decoded.columns)
    assert ledger.DecodedChunks(*ledger_twin.decode_chunks([chunk])) == decoded


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 2**32), max_size=5))
def test_chunks_decoded_together_are_their_tables_one_after_the_other(seeds: list[int]) -> None:
    chunks = [encode_chunk(draw_tables(seed), ANCHOR) for seed in seeds]
    together = ledger.decode_chunks(chunks)
    assert together.accepted == list(range(len(chunks)))
    assert ledger.DecodedChunks(*ledger_twin.decode_chunks(chunks)) == together
    row = 0
    for seed, rows in zip(seeds, together.rows, strict=True):
        alone = draw_tables(seed)
        ranks = wrap_columns(together.columns).ranks.start_ns
        np.testing.assert_array_equal(ranks[row : row + len(alone.ranks)], alone.ranks.start_ns)
        row += rows[Table.RANKS]


@settings(deadline=None, max_examples=400)
@given(st.integers(0, 2**32), st.data())
def test_damaged_bytes_are_refused_or_decoded_alike_and_never_crash(seed: int, data: st.DataObject) -> None:
    chunk = bytearray(encode_chunk(draw_tables(seed), ANCHOR))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, min(len(chunk) - 1, 400)) | st.integers(0, len(chunk) - 1))
        chunk[at] = data.draw(st.sampled_from([0, 1, 8, 255]) | st.integers(0, 255))
    cut = data.draw(st.integers(0, len(chunk)) | st.just(len(chunk)))
    good = encode_chunk(draw_tables(seed + 1), ANCHOR)
    chunks = [good, bytes(chunk[:cut]), good]
    decoded = ledger.decode_chunks(chunks)
    assert {0, 2} <= set(decoded.accepted)
    assert ledger.DecodedChunks(*ledger_twin.decode_chunks(chunks)) == decoded


@settings(deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_arbitrary_bytes_are_refused_alike(raw: bytes, has_magic: bool) -> None:
    chunk = EMPTY[:6] + raw if has_magic else raw
    decoded = ledger.decode_chunks([chunk])
    assert ledger.DecodedChunks(*ledger_twin.decode_chunks([chunk])) == decoded


def change(chunk: bytes, at: int, raw: bytes) -> bytes:
    return chunk[:at] + raw + chunk[at + len(raw) :]


@pytest.mark.parametrize(
    "decode",
    [
        lambda chunks: ledger.decode_chunks(chunks).refused,
        lambda chunks: ledger_twin.decode_chunks(chunks)[2],
    ],
)
@pytest.mark.parametrize(
    ("chunk", "status"),
    [
        (b"", Status.TRUNCATED),
        (change(EMPTY, 0, b"JUNK"), Status.FOREIGN),
        (change(EMPTY, 4, b"\2"), Status.NEWER),
        (change(EMPTY, 5, b"\1"), Status.NEWER),
        (change(EMPTY, 4, b"\0\0"), Status.TOO_OLD),
        (EMPTY + b"x", Status.TRAILING_BYTES),
        (EMPTY[:-1], Status.TRUNCATED),
        (bytes((1 << 20) + 1), Status.TOO_MANY_ROWS),
        (pack_chunk(ANCHOR, [0] * 17, []), Status.BAD_COLUMN),
        (pack_chunk(ANCHOR, [2000], []), Status.TOO_MANY_ROWS),
        (pack_chunk(ANCHOR, [0, 0, 5], []), Status.BAD_INDEX),
    ],
)  # fmt: skip
def test_each_way_to_be_wrong_has_its_name(decode: object, chunk: bytes, status: Status) -> None:
    assert callable(decode)
    assert decode([chunk]) == [(0, status)]


def test_native_library_is_what_these_tests_decode_with() -> None:
    if ledger._load_functions() is None:
        pytest.skip("libllmprism is not built here: both sides of the comparison are the twin")
