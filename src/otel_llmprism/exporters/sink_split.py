# Cuts an export request that is too large for a backend into smaller ones, without decoding a record.
from otel_llmprism.model.signals import Signal
from otel_llmprism.native.otlp import MalformedRequestError, scan, split


def split_request(signal: Signal, payload: bytes) -> list[bytes]:
    """Return requests of about half the size with the same records in order; [] when it is one record."""
    try:
        found = scan(payload, signal)
    except MalformedRequestError:
        return []
    if found.record_count < 2:
        return []
    return split(payload, found, len(payload) // 2)
