# OTLP export requests as bytes: scan them to columns and offsets, drop, append, split, never decode.
# Runs on libllmprism when it is there, else on the byte-identical Python twin. The answer is bytes;
# knows neither numpy nor the model (docs/adr/0010).
from collections.abc import Sequence
from typing import Final, Protocol, cast

from otel_llmprism.native import otlp_native, otlp_twin, otlp_twin_edit, otlp_twin_stamp
from otel_llmprism.native.otlp_encode import Scalar, encode_attribute, encode_link
from otel_llmprism.native.otlp_layout import (
    LOG_DTYPE,
    METRIC_DTYPE,
    RECORD_DTYPES,
    RESOURCE_DTYPE,
    SCOPE_DTYPE,
    SPAN_DTYPE,
    VALUE_DTYPE,
    KeySelection,
    MalformedRequestError,
    RecordCounts,
    Scan,
)
from otel_llmprism.native.otlp_rule import StampRule
from otel_llmprism.native.otlp_split import plan_cuts

__all__ = [
    "LOG_DTYPE",
    "METRIC_DTYPE",
    "NO_KEYS",
    "RESOURCE_DTYPE",
    "SCOPE_DTYPE",
    "SPAN_DTYPE",
    "VALUE_DTYPE",
    "KeySelection",
    "MalformedRequestError",
    "RecordCounts",
    "Scalar",
    "Scan",
    "StampRule",
    "append_attributes",
    "check",
    "encode_attribute",
    "encode_link",
    "scan",
    "select",
    "split",
    "stamp_spans",
]

NO_KEYS: Final = KeySelection(())


def scan(payload: bytes, signal: str, keys: KeySelection = NO_KEYS, *, is_checked: bool = False) -> Scan:
    """Return where everything is in one export request; linear, bounded, reads nothing outside it.

    Raises MalformedRequestError exactly where protobuf refuses the framing, and for requests beyond
    MAX_ROWS or 2 GiB. Invalid UTF-8 and bad ids are counted, not refused. With `is_checked` (a scan
    accepted these bytes before) what no column needs is stepped over: several times faster, nothing
    below the records is counted.
    """
    if signal not in RECORD_DTYPES:
        raise ValueError(f"no such signal: {signal!r}; it is traces, logs or metrics")
    run_scan = otlp_native.scan if otlp_native.find_scanner() else otlp_twin.scan
    return run_scan(payload, signal, keys, is_checked=is_checked)


def check(payload: bytes, signal: str) -> RecordCounts:
    """Return what one export request holds, refusing exactly what scan refuses; makes no rows."""
    if signal not in RECORD_DTYPES:
        raise ValueError(f"no such signal: {signal!r}; it is traces, logs or metrics")
    if otlp_native.find_scanner():
        return otlp_native.check(payload, signal)
    found = otlp_twin.scan(payload, signal, NO_KEYS)
    return RecordCounts(found.record_count, found.bad_id_count, found.invalid_utf8_count)


def select(payload: bytes, scan: Scan, keep: bytes) -> bytes:
    """Return a request with only the records whose byte in `keep` is not 0 (all kept: `payload` itself).

    Resources and scopes that lose their last record go; everything else stays byte for byte.
    """
    _check_pair(payload, scan)
    if len(keep) != scan.record_count:
        raise ValueError(f"keep has {len(keep)} bytes for {scan.record_count} records")
    return _editor().select(payload, scan, keep)


def append_attributes(payload: bytes, scan: Scan, edits: Sequence[tuple[int, bytes]]) -> bytes:
    """Return the request with encoded fields appended to records; nothing to append: `payload` itself.

    An edit is a record's index and whole fields (encode_attribute, encode_link). An attribute whose key
    the record has, and any other field it has with the same bytes, is not appended again. Lengths that
    enclose a change are rewritten; all else stays byte for byte. Linear in payload and edits.
    """
    _check_pair(payload, scan)
    for index, _ in edits:
        if not 0 <= index < scan.record_count:
            raise ValueError(f"there is no record {index} among {scan.record_count}")
    return _editor().append_fields(payload, scan, edits)


def stamp_spans(payload: bytes, rule: StampRule) -> bytes:
    """Return a trace request with the rule's fields appended to the spans that it matches.

    For bytes that a scan accepted before. The same as scan, match and append_attributes, in one step;
    no span matched, or all have the fields: `payload` itself. Raises what scan raises.
    """
    run_stamp = otlp_native.stamp_spans if otlp_native.find_scanner() else otlp_twin_stamp.stamp_spans
    return run_stamp(payload, rule)


def split(payload: bytes, scan: Scan, max_bytes: int) -> list[bytes]:
    """Return requests of at most `max_bytes` that together hold every record, in order.

    A record that is larger with its envelope goes alone, above the limit: the caller decides on it.
    """
    _check_pair(payload, scan)
    if len(payload) <= max_bytes or scan.record_count < 2:
        return [payload]
    (_, first_end), *ranges = plan_cuts(scan, max_bytes)
    keep = bytes([1]) * first_end + bytes(scan.record_count - first_end)
    head = _editor().select(payload, scan, keep)
    return [head, *(_editor().cut(payload, scan, first, last) for first, last in ranges)]


class _Editor(Protocol):
    def select(self, payload: bytes, scan: Scan, keep: bytes) -> bytes: ...

    def cut(self, payload: bytes, scan: Scan, first: int, last: int) -> bytes: ...

    def append_fields(self, payload: bytes, scan: Scan, edits: Sequence[tuple[int, bytes]]) -> bytes: ...


def _editor() -> _Editor:
    return cast("_Editor", otlp_native if otlp_native.find_scanner() else otlp_twin_edit)


def _check_pair(payload: bytes, scan: Scan) -> None:
    if len(payload) != scan.payload_size:
        raise ValueError("this scan is of another payload")
