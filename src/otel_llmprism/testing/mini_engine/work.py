# One step's work as every rank needs it: flat arrays, and their bytes for the pipe to the other ranks.
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from otel_llmprism.testing.mini_engine.scheduler import Plan

Ints = npt.NDArray[np.int32]
_PREFIX = np.dtype([("step_id", "<i8"), ("probability", "<f8"), ("kept", "<i4"), ("sequences", "<i4")])


@dataclass(frozen=True, slots=True)
class StepWork:
    step_id: int
    probability: float
    is_kept: bool
    tokens: Ints  # of all sequences, one after the other
    starts: Ints  # per sequence: position of its first token
    counts: Ints  # per sequence: tokens in this step
    tables: list[Ints]  # per sequence: its KV blocks in order


def build_work(plan: Plan, step_id: int, probability: float, is_kept: bool) -> StepWork:
    """Copy what the model needs out of the plan."""
    parts = [share.sequence.tokens[share.start : share.start + share.count] for share in plan.shares]
    return StepWork(
        step_id=step_id,
        probability=probability,
        is_kept=is_kept,
        tokens=np.array([token for part in parts for token in part], dtype=np.int32),
        starts=np.array([share.start for share in plan.shares], dtype=np.int32),
        counts=np.array([share.count for share in plan.shares], dtype=np.int32),
        tables=[np.array(share.sequence.blocks, dtype=np.int32) for share in plan.shares],
    )


def encode_work(work: StepWork) -> bytes:
    prefix = np.array([(work.step_id, work.probability, work.is_kept, len(work.counts))], dtype=_PREFIX)
    lengths = np.array([len(table) for table in work.tables], dtype=np.int32)
    arrays = (work.starts, work.counts, lengths, *work.tables, work.tokens)
    return prefix.tobytes() + b"".join(array.tobytes() for array in arrays)


def decode_work(raw: bytes) -> StepWork:
    prefix = np.frombuffer(raw, dtype=_PREFIX, count=1)[0]
    body = np.frombuffer(raw, dtype=np.int32, offset=_PREFIX.itemsize)
    n = int(prefix["sequences"])
    starts, counts, lengths = body[:n], body[n : 2 * n], body[2 * n : 3 * n]
    ends = 3 * n + np.cumsum(lengths)
    tables = [body[end - length : end] for end, length in zip(ends, lengths, strict=True)]
    first_token = int(ends[-1]) if n else 0
    return StepWork(
        step_id=int(prefix["step_id"]),
        probability=float(prefix["probability"]),
        is_kept=bool(prefix["kept"]),
        tokens=body[first_token:],
        starts=starts,
        counts=counts,
        tables=tables,
    )
