# Makes ledger-1.0.bin: one small chunk. ledger-0.1.bin and ledger-0.0.bin are what the formats before wrote
# of the same engine, without collectives and phases; nothing makes them anew. Run, then read the diff:
#   .venv/bin/python tests/golden/make_ledger_goldens.py
from pathlib import Path

from otel_llmprism.exporters.ledger_chunks import encode_chunk
from otel_llmprism.native import ledger_layout as layout
from otel_llmprism.native import ring_records as records
from otel_llmprism.native.ring import RunningSet
from otel_llmprism.native.ring_records import (
    CollectiveOp,
    Finish,
    RequestEvent,
    StepKind,
    derive_request_handle,
)
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ring import RingAssembler, RingAssemblerConfig

HERE = Path(__file__).parent
GROUP = records.derive_group_hash("tp", (0, 1))


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
        slots += [
            records.pack_collective(
                1,
                rank,
                GROUP,
                seq,
                CollectiveOp.ALL_REDUCE,
                4096,
                start + 10 * seq,
                start + 10 * seq + 4 + rank,
            )
            for rank in (0, 1)
            for seq in (0, 1)
            if step == 1
        ]
        if step == 2:
            slots.append(
                records.pack_collective(
                    2, 0, GROUP, 0, CollectiveOp.SEND, 8, records.UNKNOWN_NS, records.UNKNOWN_NS, 17
                )
            )
            slots.append(records.pack_step_phases(2, 0, 7, 20, 25, 5, records.UNKNOWN_NS, 4))
        slots.append(records.pack_step_output(step, start + 70, 60, records.UNKNOWN_NS, 3, gap_ns=5))
    ended = derive_request_handle("chat-a")
    slots.append(records.pack_request_ended(ended, 1180, 5, 2, 0, 2, 0, Finish.STOP))
    slots.append(records.pack_pause(1300, 1400, 1))
    assembler = RingAssembler(Counters(), RingAssemblerConfig(expected_ranks=2))
    assembler.consume(b"".join(slots))
    tables = assembler.take(0)
    assert tables is not None
    return encode_chunk(tables, layout.ChunkAnchor(0, 2, 1_000, 1_700_000_000_000_000_000))


if __name__ == "__main__":
    (HERE / "ledger-1.0.bin").write_bytes(build_chunk())
