# One stored model <-> bytes: a line of JSON that describes it and the checksum of what follows, then the
# model as baseline wrote it. Several may stand one after another. Nothing is evaluated; any bytes are safe.
import hashlib
import json
import math
from typing import Any

import numpy as np

from otel_llmprism.baseline.expected import dump_expected, load_expected
from otel_llmprism.model.work import WorkTable
from otel_llmprism.service.baselines.stored_baseline import BaselineKey, FitNotes, StoredBaseline

FORMAT = "llmprism.baseline/1"
MAX_HEADER_BYTES = 4 << 20
MAX_MODEL_BYTES = 64 << 20
MAX_INSTANCES = 4096
MAX_PROBE_ROWS = 256
_MAX_OFFSET = 5.0  # e^5: no instance of the same thing is further away


class BaselineFileError(ValueError):
    """Bytes that are no stored model; the text says why and fits one line."""


def encode_baseline(stored: StoredBaseline) -> bytes:
    """Return the header line and the model."""
    body = dump_expected(stored.model)
    key, notes = stored.key, stored.notes
    header = {
        "format": FORMAT,
        "bytes": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
        "key": [key.engine, key.model, key.hardware],
        "version": stored.model.version,
        "notes": [notes.steps, notes.instances, notes.seed, notes.from_ns, notes.to_ns, notes.mape],
        "offsets": {
            name: {str(kind): round(value, 6) for kind, value in kinds.items()}
            for name, kinds in stored.offsets.items()
        },
        "probe": _encode_probe(stored.probe),
    }
    return json.dumps(header, separators=(",", ":")).encode() + b"\n" + body


def decode_baselines(raw: bytes) -> list[StoredBaseline]:
    """Return the models that stand in `raw`; BaselineFileError when one of them is damaged."""
    found = []
    while raw:
        stored, raw = _decode_first(raw)
        found.append(stored)
    return found


def _decode_first(raw: bytes) -> tuple[StoredBaseline, bytes]:
    line, newline, _ = raw[:MAX_HEADER_BYTES].partition(b"\n")
    header = _parse_header(line) if newline else {}
    if header.get("format") != FORMAT:
        raise BaselineFileError(f"no stored baseline of format {FORMAT}; fit it anew")
    size, rest = header.get("bytes"), raw[len(line) + 1 :]
    if not isinstance(size, int) or not 0 <= size <= min(len(rest), MAX_MODEL_BYTES):
        raise BaselineFileError("the stored baseline is torn or longer than one can be")
    body = rest[:size]
    if hashlib.sha256(body).hexdigest() != header.get("sha256"):
        raise BaselineFileError("the stored baseline is damaged: its checksum does not fit")
    try:
        return _build(header, body), rest[size:]
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise BaselineFileError(f"the stored baseline is refused: {error}") from error


def _parse_header(line: bytes) -> dict[str, Any]:
    try:
        header = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return header if isinstance(header, dict) else {}


def _build(header: dict[str, Any], body: bytes) -> StoredBaseline:
    key = BaselineKey(*(str(part)[:256] for part in header["key"][:3]))
    steps, instances, seed, from_ns, to_ns, mape = header["notes"]
    counts = int(steps), int(instances), int(seed), int(from_ns), int(to_ns)
    notes = FitNotes(*counts, _read_number(mape))
    offsets = header["offsets"]
    if len(offsets) > MAX_INSTANCES:
        raise BaselineFileError(f"it names {len(offsets)} instances, at most {MAX_INSTANCES} are read")
    return StoredBaseline(
        key, load_expected(body), notes, _decode_probe(header["probe"]),
        {str(name): _decode_offsets(kinds) for name, kinds in offsets.items()},
    )  # fmt: skip


def _decode_offsets(kinds: dict[str, Any]) -> dict[int, float]:
    offsets = {int(kind): float(value) for kind, value in kinds.items()}
    if not all(0 <= kind < 256 and abs(value) <= _MAX_OFFSET for kind, value in offsets.items()):
        raise BaselineFileError("an instance lies further from its model than anything can")
    return offsets


def _read_number(value: object) -> float | None:
    number = math.nan if value is None else float(value)  # type: ignore[arg-type]  # what is none raises
    return number if math.isfinite(number) else None


def _encode_probe(probe: WorkTable) -> dict[str, object]:
    rows = [
        [None if math.isnan(cell) else cell for cell in row] for row in probe.values[:MAX_PROBE_ROWS].tolist()
    ]
    return {"names": probe.names, "kind": probe.kind[:MAX_PROBE_ROWS].tolist(), "values": rows}


def _decode_probe(raw: dict[str, Any]) -> WorkTable:
    names, kind = tuple(str(name) for name in raw["names"]), np.array(raw["kind"], np.uint8)
    values = np.array(raw["values"], np.float64).reshape(len(kind), len(names))
    if len(kind) > MAX_PROBE_ROWS or len(set(names)) < len(names) or np.any(values < 0):
        raise BaselineFileError("its sample of work is no work")
    return WorkTable(kind, names, values)
