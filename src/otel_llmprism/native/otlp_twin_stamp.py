# Stamps spans in Python: scan, match and append one after the other. Mirrors native/src/otlp_stamp.cpp.
from typing import Final

from otel_llmprism.native import otlp_layout as layout
from otel_llmprism.native.otlp_layout import Scan
from otel_llmprism.native.otlp_rule import StampRule
from otel_llmprism.native.otlp_twin import scan
from otel_llmprism.native.otlp_twin_edit import append_fields

_SPAN: Final = layout.build_struct(layout.SPAN_DTYPE)
_CELL: Final = layout.build_struct(layout.VALUE_DTYPE)
_NAME_OFFSET: Final = [column[0] for column in layout.SPAN_DTYPE].index("name_offset")


def stamp_spans(payload: bytes, rule: StampRule) -> bytes:
    """Append the rule's fields to the spans that it matches; none: `payload` itself."""
    found = scan(payload, "traces", rule.keys, is_checked=True)
    names = _match_names(payload, found, rule)
    values = _match_values(payload, found, rule)
    rows = [
        row
        for row, (has_name, has_value) in enumerate(zip(names, values, strict=True))
        if has_name and has_value
    ]
    return append_fields(payload, found, [(row, rule.fields) for row in rows]) if rows else payload


def _match_names(payload: bytes, found: Scan, rule: StampRule) -> list[bool]:
    places = [row[_NAME_OFFSET : _NAME_OFFSET + 2] for row in _SPAN.iter_unpack(found.records)]
    return [rule.allows_name(payload[offset : offset + length]) for offset, length in places]


def _match_values(payload: bytes, found: Scan, rule: StampRule) -> list[bool]:
    if not rule.keys.record_keys:
        return [True] * found.record_count
    return [
        rule.allows_value(value_type, bits, payload[offset : offset + length])
        for bits, offset, length, value_type, _ in _CELL.iter_unpack(found.values)
    ]
