# Whether a span answers to tags such as `llmprism.step.kind=decode`: values compare in their canonical
# text form, against the span's, its events' and its resource's attributes.
import json
import re
from collections.abc import Iterator, Mapping

from otel_llmprism.exporters.store.decode import Attributes, SpanDetail, Value
from otel_llmprism.exporters.store.scan_columns import format_double

ERROR_STATUS = 2
COLUMN_TAGS = frozenset({"span.kind", "error", "otel.status_code"})
_OK_STATUS = 1
# What a number, a truth value, bytes in hexadecimal, a list or a map may look like as text.
_OTHER_TYPES = re.compile(r"[-+]?[0-9.]|true$|false$|nan$|-?inf$|\[|\{|[0-9a-f]*$")
KIND_NAMES = ("", "internal", "server", "client", "producer", "consumer")


def to_text(value: Value) -> str:
    """Return the text by which a value is searched, and shown where only text can be."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return format_double(value)
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | dict):
        return json.dumps(_to_plain(value), ensure_ascii=False)
    return "" if value is None else str(value)


def match_columns(kind: int, status: int, tags: Mapping[str, str]) -> bool:
    """Tell whether those of `tags` hold that stand for columns (COLUMN_TAGS)."""
    expected = {
        "span.kind": KIND_NAMES[kind] if 0 <= kind < len(KIND_NAMES) else "",
        "error": "true" if status == ERROR_STATUS else "false",
        "otel.status_code": {_OK_STATUS: "OK", ERROR_STATUS: "ERROR"}.get(status, ""),
    }
    return all(tags.get(key, told) == told for key, told in expected.items())


def list_needles(tags: Mapping[str, str]) -> tuple[bytes, ...]:
    """Return bytes that a match must hold: the keys, and the values that only text can have."""
    values = (value for value in tags.values() if not _OTHER_TYPES.match(value))
    return tuple(text.encode() for text in (*tags, *values))


def match_attributes(detail: SpanDetail, resource: Attributes, tags: Mapping[str, str]) -> bool:
    """Tell whether every tag holds for the span, one of its events, or its resource."""
    return all(value in _list_texts(key, detail, resource) for key, value in tags.items())


def _list_texts(key: str, detail: SpanDetail, resource: Attributes) -> Iterator[str]:
    for attributes in (detail.attributes, resource, *(event.attributes for event in detail.events)):
        if key in attributes:
            yield to_text(attributes[key])


def _to_plain(value: Value) -> object:
    if isinstance(value, list):
        return [_to_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _to_plain(item) for key, item in value.items()}
    return value.hex() if isinstance(value, bytes) else value
