# Makes ledger-0.1.bin (one small chunk) and ledger-0.0.bin: the same chunk as the synthetic format before
# would have written it, without lanes, gaps, pauses and tables of host samples. Run, then read the diff:
#   .venv/bin/python tests/golden/make_ledger_goldens.py
import struct
from pathlib import Path

from otel_llmprism.exporters.ledger_chunks import encode_chunk
from otel_llmprism.native import ledger_layout as layout
from otel_llmprism.native import ring_records as records
from otel_llmprism.native.ledger_schema import COLUMNS, Table
from otel_llmprism.native.ring import RunningSet
from otel_llmprism.native.ring_records import Finish, RequestEvent, StepKind, derive_request_handle
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ring import RingAssembler, RingAssemblerConfig

HERE = Path(__file__).parent
NEW_COLUMNS = {"steps.gap_ns", "steps.lane"}
OLD_TABLES = Table.PAUSES


def build_chunk() -> bytes:
    """Return three steps of two ranks and two requests, one of which ends."""
    running: RunningSet[str] = RunningSet(derive_request_handle)
    slots = []
    for number, name in enumerate(("chat-a", "chat-b")):
        handle = derive_request_handle(name)
        ids = (bytes([number + 1]) * 16, bytes([number + 1]) * 8, bytes(8))
        slots.append(records.pack_request_arrived(handle, 900 + number, *ids, name, name[:4], sampled=True))
        slots.append(records.pack_request_event(handle, 950 + number, RequestEvent.QUEUED))
    for step, tokens in enumerate(({"chat-a": 5}, {"chat-a": 1, "chat-b": 7}, {"chat-b": 1})):
        start = 1000 + 100 * step
        prefill = [name for name in tokens if tokens[name] > 1]
        prompt = sum(tokens[name] for name in prefill)
        if step == 2:
            running.leave(["chat-a"])
        members = running.diff(tokens, prefill)
        slots.append(
            records.pack_step_scheduled(
                step, start, start + 4, StepKind.MIXED, 0, 0.25, len(tokens), prompt,
                sum(tokens.values()) - prompt, 10 + step, 1, 2, 0, 0.5, 3, 1, members,
            )
        )  # fmt: skip
        slots += [
            records.pack_step_rank(step, rank, start + 5, start + 60 + rank, 50, tp=rank) for rank in (0, 1)
        ]
        slots.append(records.pack_step_output(step, start + 70, 60, records.UNKNOWN_NS, 3, gap_ns=5))
    ended = derive_request_handle("chat-a")
    slots.append(records.pack_request_ended(ended, 1180, 5, 2, 0, 2, 0, Finish.STOP))
    slots.append(records.pack_pause(1300, 1400, 1))
    assembler = RingAssembler(Counters(), RingAssemblerConfig(expected_ranks=2))
    assembler.consume(b"".join(slots))
    tables = assembler.take(0)
    assert tables is not None
    return encode_chunk(tables, layout.ChunkAnchor(0, 2, 1_000, 1_700_000_000_000_000_000))


def write_as_format_before(chunk: bytes) -> bytes:
    """Return the chunk without what format 0.1 added, marked 0.0."""
    rows = struct.unpack_from(f"<{len(Table)}I", chunk, layout.CHUNK_HEADER.size)
    at = layout.CHUNK_HEADER.size + 4 * len(rows)
    by_id = {column.id: column for column in COLUMNS}
    kept = []
    while at < len(chunk):
        column = by_id[layout.COLUMN_HEADER.unpack_from(chunk, at)[0]]
        end = (
            at
            + layout.COLUMN_HEADER.size
            + layout.COLUMN_HEADER.unpack_from(chunk, at)[2] * rows[column.table]
        )
        if column.key not in NEW_COLUMNS and column.table < OLD_TABLES:
            kept.append(chunk[at:end])
        at = end
    body = struct.pack(f"<{OLD_TABLES}I", *rows[:OLD_TABLES]) + b"".join(kept)
    header = list(layout.CHUNK_HEADER.unpack_from(chunk))
    header[2:5] = [0, int(OLD_TABLES), len(kept)]
    header[6] = layout.CHUNK_HEADER.size + len(body)
    return layout.CHUNK_HEADER.pack(*header) + body


if __name__ == "__main__":
    current = build_chunk()
    (HERE / "ledger-0.1.bin").write_bytes(current)
    (HERE / "ledger-0.0.bin").write_bytes(write_as_format_before(current))
