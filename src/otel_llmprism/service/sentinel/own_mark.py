# How the processor knows its own requests again on their way out, also when the log gives them back after a
# restart: an unknown field at the end of the bytes, taken off before they leave. So what comes back over the
# network, whoever made it, is never taken for ours, and nothing can circle.
_FIELD = b"\xfa\x3f\x10"  # field 1023, 16 bytes
MARK = _FIELD + b"otel_llmprism.me"


def add_mark(payload: bytes) -> bytes:
    return payload + MARK


def has_mark(payload: bytes) -> bool:
    return payload.endswith(MARK)


def strip_mark(payload: bytes) -> bytes:
    return payload.removesuffix(MARK)
