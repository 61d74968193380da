# Ids derived from engine, run and step, so that a step can be linked to before, and made into spans
# after, the decision to keep it (docs/adr/0005). Pure: no time, no randomness.
import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import _Hash


def derive_step_trace_id(engine_id: str, run: bytes, step_id: int) -> bytes:
    """Return the 16-byte trace id of one step of one run of one engine."""
    state = start_step_hash(engine_id, run)
    state.update(b"%d" % step_id)
    return _without_zero(state.digest()[:16])


def start_step_hash(engine_id: str, run: bytes) -> "_Hash":
    """Return the hash of all that the trace ids of one run share; a step adds its number to a copy."""
    return hashlib.sha256(b"\0".join((b"llmprism1", engine_id.encode(), run.hex().encode(), b"")))


def derive_span_id(trace_id: bytes, span_name: str, rank: int | None = None) -> bytes:
    """Return the 8-byte span id of the step (`rank` None) or of one of its ranks."""
    rank_text = b"" if rank is None else b"%d" % rank
    digest = hashlib.sha256(trace_id + span_name.encode() + b"\0" + rank_text).digest()
    return _without_zero(digest[:8])


def is_kept_at_random(trace_id: bytes, probability: float) -> bool:
    """Tell whether a step of this trace id is kept when steps are kept with `probability`."""
    return int.from_bytes(trace_id[:8], "big") < probability * 2.0**64


def _without_zero(raw: bytes) -> bytes:
    return raw if any(raw) else raw[:-1] + b"\1"
