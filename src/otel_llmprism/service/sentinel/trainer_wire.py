# What the sentinel and the process that fits models say to each other, over pipes: a header in JSON, then
# plain columns; back, a status byte and the model's bytes or one line of text. Bounded.
import json
import struct

import numpy as np

from otel_llmprism.model.steps import U64
from otel_llmprism.model.work import WorkTable
from otel_llmprism.service.sentinel.engine_model import TrainJob
from otel_llmprism.service.sentinel.slow_median import I64

MAGIC = b"llmprism-fit1"
_HEADER = struct.Struct("<I")
MAX_ROWS, MAX_FEATURES, MAX_HEADER_BYTES = 1_000_000, 64, 16 << 10
MAX_ANSWER_BYTES = 64 << 20
FITTED, FAILED = b"\x01", b"\x02"


class WireError(ValueError):
    """These bytes are no job."""


def encode_job(job: TrainJob) -> bytes:
    header = {"names": list(job.work.names), "rows": len(job.cycle_ns), "seed": job.seed}
    raw = json.dumps(header).encode()
    columns = (
        np.asarray(job.work.kind, np.uint8),
        np.asarray(job.work.values, "<f8"),
        np.asarray(job.cycle_ns, "<u8"),
        np.asarray(job.groups, "<i8"),
    )
    return b"".join([MAGIC, _HEADER.pack(len(raw)), raw, *(column.tobytes() for column in columns)])


def decode_job(raw: bytes) -> tuple[WorkTable, U64, I64, int]:
    """Return work, cycles, groups and seed; WireError for anything else."""
    start = len(MAGIC) + _HEADER.size
    if not raw.startswith(MAGIC) or len(raw) < start:
        raise WireError("not a job")
    (size,) = _HEADER.unpack_from(raw, len(MAGIC))
    if size > MAX_HEADER_BYTES:
        raise WireError("its header is too long")
    names, rows, seed = _read_header(raw[start : start + size])
    body = memoryview(raw)[start + size :]
    sizes = [rows, rows * len(names) * 8, rows * 8, rows * 8]
    if len(body) != sum(sizes):
        raise WireError("its columns do not fill it")
    ends = np.cumsum([0, *sizes]).tolist()
    kind, values, cycle, groups = (
        np.frombuffer(body[first:last], dtype)
        for first, last, dtype in zip(ends, ends[1:], ("u1", "<f8", "<u8", "<i8"), strict=False)
    )
    return WorkTable(kind, names, values.reshape(rows, len(names))), cycle, groups, seed


def _read_header(raw: bytes) -> tuple[tuple[str, ...], int, int]:
    try:
        header = json.loads(raw)
        names, rows, seed = tuple(header["names"]), header["rows"], header["seed"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise WireError("its header is no JSON object") from error
    if not all(isinstance(name, str) for name in names) or len(names) > MAX_FEATURES:
        raise WireError("its features are no names")
    if type(rows) is not int or type(seed) is not int or not 0 <= rows <= MAX_ROWS:
        raise WireError("its numbers are no numbers of rows")
    return names, rows, seed
