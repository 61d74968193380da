# A pause lies between two training steps, and may be drained long before the later one is whole.
from otel_llmprism.model.steps import LedgerTables
from otel_llmprism.native.ring_records import (
    Kept,
    Mode,
    Pause,
    StepKind,
    pack_pause,
    pack_step_output,
    pack_step_rank,
    pack_step_scheduled,
)
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ring import RingAssembler, RingAssemblerConfig

MS = 1_000_000


def pack_iteration(step: int, start_ms: int, end_ms: int, rank: int) -> bytes:
    record = pack_step_rank(step, rank, start_ms * MS, end_ms * MS)
    if rank:
        return record
    scheduled = pack_step_scheduled(
        step,
        start_ms * MS,
        start_ms * MS,
        StepKind.TRAIN,
        Kept.NO,
        0.0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0.0,
        0,
        Mode.SENTINEL,
    )
    return record + scheduled + pack_step_output(step, end_ms * MS, 0, 0, 0)


def drain(assembler: RingAssembler, slots: bytes) -> LedgerTables | None:
    assembler.consume(slots)
    return assembler.take(1)


def test_a_pause_that_was_shipped_before_its_step_is_still_taken_off() -> None:
    assembler = RingAssembler(Counters(), RingAssemblerConfig(expected_ranks=2))
    first = drain(assembler, pack_iteration(0, 100, 110, rank=0) + pack_iteration(0, 100, 110, rank=1))
    assert first is not None
    pause = drain(
        assembler, pack_pause(111 * MS, 141 * MS, Pause.CHECKPOINT) + pack_iteration(1, 110, 150, 0)
    )
    assert pause is not None
    assert (len(pause.steps), len(pause.pauses)) == (0, 1)
    second = drain(assembler, pack_iteration(1, 110, 152, rank=1))
    assert second is not None
    assert second.steps.cycle_ns.tolist() == [12 * MS]
    assert len(second.pauses) == 0  # it is in the ledger once
    third = drain(assembler, pack_iteration(2, 150, 160, rank=0) + pack_iteration(2, 152, 161, rank=1))
    assert third is not None
    assert third.steps.cycle_ns.tolist() == [10 * MS]
