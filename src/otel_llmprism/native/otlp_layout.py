# What the OTLP scanner hands out: little-endian structs without padding, published as lists that
# np.dtype() takes (numpy itself is unknown here), the key selection, the scan and its error.
# The native side states the same layouts in native/include/llmprism/otlp.h.
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

Layout = list[tuple[str, str] | tuple[str, str, tuple[int]]]

MAX_KEYS: Final = 64
MAX_DEPTH: Final = 100  # of submessages and groups, as upb has it
MAX_PAYLOAD: Final = (1 << 31) - 1
# A two-byte empty record costs a row of some 100 bytes: these two bound what a hostile request can cost.
MAX_ROWS: Final = 1 << 20
MAX_CELLS: Final = 1 << 24

RECORD_BAD_ID: Final = 1
BAD_UTF8: Final = 2
IN_PIECES: Final = 4  # a resource or scope message came more than once; its offset points at the last

ABSENT: Final = 0  # value types 1 to 8 are the field numbers of AnyValue
STRING: Final = 1
BOOL: Final = 2
INT: Final = 3
DOUBLE: Final = 4
ARRAY: Final = 5
KVLIST: Final = 6
BYTES: Final = 7
STRINDEX: Final = 8
EMPTY: Final = 9  # the key is there, its value is not
ARRAY_IN_PIECES: Final = 10  # merged from several fields; offset points at the last
KVLIST_IN_PIECES: Final = 11

WHY: Final = {
    1: "the request ends inside a field",
    2: "a varint is too long",
    3: "a field has the number 0",
    4: "a field has an unknown wire type",
    5: "a group ends that did not start",
    6: "a group does not end",
    7: "a length runs past the end of its message",
    8: "messages are nested deeper than 100",
    9: "a packed field does not hold whole numbers",
    10: f"more than {MAX_ROWS} records, or {MAX_CELLS} selected values, in one request; send smaller ones",
    11: "the request is larger than 2 GiB",
}
TRUNCATED, BAD_VARINT, FIELD_ZERO, BAD_WIRE_TYPE, STRAY_GROUP_END, OPEN_GROUP = 1, 2, 3, 4, 5, 6
PAST_END, TOO_DEEP, BAD_PACKED, TOO_MANY, TOO_LARGE = 7, 8, 9, 10, 11


def _columns(kind: str, names: str) -> Layout:
    return [(name, kind) for name in names.split()]


_PLACE = "start offset length"  # of the tag, of the submessage's body, of the body in bytes
RESOURCE_DTYPE: Final[Layout] = _columns(
    "<u4",
    f"{_PLACE} resource_offset resource_length schema_url_offset schema_url_length attribute_count"
    " first_scope scope_count first_record record_count flags",
)
SCOPE_DTYPE: Final[Layout] = _columns(
    "<u4",
    f"{_PLACE} resource scope_offset scope_length name_offset name_length version_offset version_length"
    " schema_url_offset schema_url_length attribute_count first_record record_count flags",
)
SPAN_DTYPE: Final[Layout] = [
    ("start_ns", "<u8"),
    ("end_ns", "<u8"),
    ("trace_id", "u1", (16,)),
    ("span_id", "u1", (8,)),
    ("parent_span_id", "u1", (8,)),
    *_columns("<u4", f"{_PLACE} resource scope name_offset name_length"),
    ("kind", "<i4"),
    ("status_code", "<i4"),
    *_columns("<u4", "status_message_offset status_message_length"),
    *_columns("<u4", "attribute_count event_count link_count trace_flags flags"),
]
LOG_DTYPE: Final[Layout] = [
    ("time_ns", "<u8"),
    ("observed_ns", "<u8"),
    ("trace_id", "u1", (16,)),
    ("span_id", "u1", (8,)),
    *_columns("<u4", f"{_PLACE} resource scope"),
    ("severity", "<i4"),
    *_columns("<u4", "severity_text_offset severity_text_length event_name_offset event_name_length"),
    *_columns("<u4", "body_offset body_length body_type attribute_count trace_flags flags"),
]
METRIC_DTYPE: Final[Layout] = [
    *_columns("<u4", f"{_PLACE} resource scope name_offset name_length unit_offset unit_length type"),
    ("temporality", "<i4"),
    *_columns("<u4", "is_monotonic point_count flags"),
]
VALUE_DTYPE: Final[Layout] = [("bits", "<u8"), *_columns("<u4", "offset length type reserved")]

RECORD_DTYPES: Final = {"traces": SPAN_DTYPE, "logs": LOG_DTYPE, "metrics": METRIC_DTYPE}
# KeyValue fields of a record: Span.attributes, LogRecord.attributes, Metric.metadata (tag as on the wire).
ATTRIBUTE_TAGS: Final = {"traces": 0x4A, "logs": 0x32, "metrics": 0x62}


def build_struct(layout: Layout) -> struct.Struct:
    """Return the packer of one row of `layout`."""
    codes = {"<u4": "I", "<i4": "i", "<u8": "Q"}
    return struct.Struct("<" + "".join(codes[row[1]] if len(row) == 2 else f"{row[2][0]}s" for row in layout))


class MalformedRequestError(ValueError):
    """The bytes are no OTLP export request; `offset` is where the innermost unreadable field starts."""

    def __init__(self, offset: int, why: str) -> None:
        super().__init__(f"{why} (at byte {offset})")
        self.offset = offset
        self.why = why


class KeySelection:
    """The attribute keys whose values a scan looks up; prepared once, used for many scans."""

    __slots__ = ("record_keys", "record_packed", "resource_keys", "resource_packed")

    def __init__(self, record_keys: Sequence[str], resource_keys: Sequence[str] = ()) -> None:
        self.record_keys = tuple(record_keys)
        self.resource_keys = tuple(resource_keys)
        self.record_packed = _pack_keys(self.record_keys)
        self.resource_packed = _pack_keys(self.resource_keys)


def _pack_keys(keys: tuple[str, ...]) -> bytes:
    """Length (u32) and bytes of each key, one after the other."""
    if len(keys) > MAX_KEYS or len(set(keys)) != len(keys):
        raise ValueError(f"select at most {MAX_KEYS} different keys, not {len(keys)}")
    encoded = [key.encode() for key in keys]
    return b"".join(struct.pack("<I", len(key)) + key for key in encoded)


@dataclass(frozen=True, slots=True)
class RecordCounts:
    """What a request holds and what is wrong with it."""

    record_count: int
    bad_id_count: int
    invalid_utf8_count: int


@dataclass(frozen=True, slots=True)
class Scan:
    """Where everything is in one request. Buffers hold rows of the layouts above, in wire order."""

    signal: str
    payload_size: int
    resources: bytes
    scopes: bytes
    records: bytes
    values: bytes  # dense [record x record key] of VALUE_DTYPE; the first of equal keys is told
    resource_values: bytes  # dense [resource x resource key] of VALUE_DTYPE
    record_count: int
    bad_id_count: int  # records with RECORD_BAD_ID
    invalid_utf8_count: int  # strings anywhere in the request
