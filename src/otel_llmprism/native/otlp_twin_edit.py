# Rewrites a scanned request without decoding it: drops records, appends fields, cuts ranges. Only the
# lengths that enclose a change are written anew. Mirrors native/src/otlp_edit.cpp.
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from otel_llmprism.native import otlp_layout as layout
from otel_llmprism.native.otlp_layout import Scan
from otel_llmprism.native.otlp_twin_wire import encode_varint, read_field, read_tag

_RESOURCE: Final = layout.build_struct(layout.RESOURCE_DTYPE)
_SCOPE: Final = layout.build_struct(layout.SCOPE_DTYPE)

# start, end of a field in the payload, and what comes in its place: None leaves it, b"" drops it.
_Child = tuple[int, int, bytes | None]


def select(payload: bytes, scan: Scan, keep: bytes) -> bytes:
    """Return a request with the records whose byte in `keep` is not 0, and the envelopes of these."""
    if all(keep):
        return payload
    records = [
        (start, offset + length, None if kept else b"")
        for (start, offset, length), kept in zip(read_places(scan), keep, strict=True)
    ]
    return _splice(payload, 0, len(payload), _rebuild_resources(payload, scan, records, has_empty=True))


def cut(payload: bytes, scan: Scan, first: int, last: int) -> bytes:
    """Return the records [first, last) in the envelopes that hold them, and nothing else."""
    records = [
        (start, offset + length, None if first <= index < last else b"")
        for index, (start, offset, length) in enumerate(read_places(scan))
    ]
    resources = _rebuild_resources(payload, scan, records, has_empty=False)
    return b"".join(payload[start:end] if raw is None else raw for start, end, raw in resources)


def append_fields(payload: bytes, scan: Scan, edits: Sequence[tuple[int, bytes]]) -> bytes:
    """Return the request with the fields appended that their record does not have yet."""
    blobs: dict[int, bytes] = {}
    for index, blob in edits:
        blobs[index] = blobs.get(index, b"") + blob
    tag = layout.ATTRIBUTE_TAGS[scan.signal]
    records: list[_Child] = []
    for index, (start, offset, length) in enumerate(read_places(scan)):
        end = offset + length
        extra = _filter_fields(payload, offset, end, blobs[index], tag) if index in blobs else b""
        raw = _wrap(payload, start, payload[offset:end] + extra) if extra else None
        records.append((start, end, raw))
    if all(raw is None for _, _, raw in records):
        return payload
    return _splice(payload, 0, len(payload), _rebuild_resources(payload, scan, records, has_empty=True))


def read_places(scan: Scan) -> list[tuple[int, int, int]]:
    """Return start, offset and length of each record."""
    columns = layout.RECORD_DTYPES[scan.signal]
    at = [column[0] for column in columns].index("start")
    return [row[at : at + 3] for row in layout.build_struct(columns).iter_unpack(scan.records)]


def _rebuild_resources(payload: bytes, scan: Scan, records: list[_Child], *, has_empty: bool) -> list[_Child]:
    """Rebuild the envelopes; those without any record from the start stay if `has_empty`."""
    scopes: list[_Child] = []
    for row in _SCOPE.iter_unpack(scan.scopes):
        children = records[row[13] : row[13] + row[14]]
        scopes.append(_rebuild_node(payload, row, children, children, has_empty))
    resources: list[_Child] = []
    for row in _RESOURCE.iter_unpack(scan.resources):
        below = records[row[10] : row[10] + row[11]]
        resources.append(_rebuild_node(payload, row, scopes[row[8] : row[8] + row[9]], below, has_empty))
    return resources


def _rebuild_node(
    payload: bytes, row: Sequence[int], children: list[_Child], records: list[_Child], has_empty: bool
) -> _Child:
    start, offset, end = row[0], row[1], row[1] + row[2]
    if all(raw == b"" for _, _, raw in records) and (records or not has_empty):
        return start, end, b""
    if all(raw is None for _, _, raw in children):
        return start, end, None
    return start, end, _wrap(payload, start, _splice(payload, offset, end, children))


def _splice(payload: bytes, start: int, end: int, children: Iterable[_Child]) -> bytes:
    pieces = []
    for child_start, child_end, raw in children:
        if raw is not None:
            pieces += [payload[start:child_start], raw]
            start = child_end
    return b"".join([*pieces, payload[start:end]])


def _wrap(payload: bytes, start: int, body: bytes) -> bytes:
    """Put `body` behind the tag that stands at `start`, with its length."""
    _, length_at = read_tag(payload, start, len(payload))
    return payload[start:length_at] + encode_varint(len(body)) + body


def _filter_fields(payload: bytes, start: int, end: int, blob: bytes, attribute_tag: int) -> bytes:
    wanted: dict[tuple[int, bytes], bytes] = {}
    for identity, raw in list_identities(blob, 0, len(blob), attribute_tag):
        wanted.setdefault(identity, raw)
    tags = {tag for tag, _ in wanted}
    for identity, _ in list_identities(payload, start, end, attribute_tag, tags):
        wanted.pop(identity, None)
    return b"".join(wanted.values())


def list_identities(
    data: bytes, pos: int, end: int, attribute_tag: int, tags: set[int] | None = None
) -> Iterator[tuple[tuple[int, bytes], bytes]]:
    """Give what makes each field the same as another (an attribute: its key), and its raw bytes."""
    while pos < end:
        tag, _, at, stop = read_field(data, pos, end, layout.MAX_DEPTH)
        if tags is None or tag in tags:
            same = _find_key(data, at, stop) if tag == attribute_tag else data[at:stop]
            yield (tag, same), data[pos:stop]
        pos = stop


def _find_key(data: bytes, pos: int, end: int) -> bytes:
    key = b""
    while pos < end:
        tag, _, at, stop = read_field(data, pos, end, layout.MAX_DEPTH)
        if tag == 0x0A:
            key = data[at:stop]
        pos = stop
    return key
