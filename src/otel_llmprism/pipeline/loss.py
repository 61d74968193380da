# Counts what does not go on: a payload and a cause come in, `llmprism.lost` goes up by its records.
# Only on the losing path, so the payload may be scanned for the number.
from otel_llmprism.model.signals import Signal
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.semconv.metric import LOST


def count_loss(counters: Counters, stage: str, cause: str, signal: Signal, payload: bytes) -> None:
    """Add the records of `payload` to `llmprism.lost`; at least one, even when it cannot be read."""
    counters.add(LOST, max(1, count_records(signal, payload)), stage=stage, cause=cause)


def count_records(signal: Signal, payload: bytes) -> int:
    """Spans, log records or metrics in `payload`; 0 when there are none or the framing is bad."""
    del signal  # all three requests nest alike: 1 = resource group, 2 = scope group, 2 = record
    return sum(
        1
        for group in _list_messages(payload, 1)
        for scope in _list_messages(group, 2)
        for _ in _list_messages(scope, 2)
    )


def _list_messages(message: bytes, wanted_field: int) -> list[bytes]:
    found: list[bytes] = []
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        wire_type = tag & 7
        if wire_type == 0:
            _, at = _read_varint(message, at)
        elif wire_type in (1, 5):
            at += 8 if wire_type == 1 else 4
        elif wire_type == 2:
            length, at = _read_varint(message, at)
            if at + length > len(message):
                break
            if tag >> 3 == wanted_field:
                found.append(message[at : at + length])
            at += length
        else:
            break
    return found


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    return 0, len(message)
