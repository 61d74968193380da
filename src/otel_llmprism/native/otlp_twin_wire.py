# The protobuf wire format over bytes: tags, varints, lengths, groups; every bound checked.
# Comes in: bytes and a range. Goes out: positions. Knows nothing of OTLP. Same errors, at the same
# offsets, as native/src/otlp_wire.h.
from otel_llmprism.native import otlp_layout as layout
from otel_llmprism.native.otlp_layout import WHY, MalformedRequestError

VARINT, FIXED64, LEN, START_GROUP, END_GROUP, FIXED32 = range(6)
_TAG_BYTES = 5
_MASK64 = (1 << 64) - 1


def refuse(offset: int, code: int) -> MalformedRequestError:
    """Build the error for `code` of otlp_layout.WHY."""
    return MalformedRequestError(offset, WHY[code])


def read_varint(data: bytes, pos: int, end: int, field: int, most: int = 10) -> tuple[int, int]:
    """Return the value, cut to 64 bits, and the position behind it."""
    value = shift = 0
    stop = pos + most
    while pos < stop:
        if pos >= end:
            raise refuse(field, layout.TRUNCATED)
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK64, pos
        shift += 7
    raise refuse(field, layout.BAD_VARINT)


def read_field(data: bytes, pos: int, end: int, depth: int) -> tuple[int, int, int, int]:
    """Return tag, varint value (else 0), start and end of the value of the field at `pos`."""
    tag, at = read_tag(data, pos, end)
    if tag < 8:
        raise refuse(pos, layout.FIELD_ZERO)
    if tag & 7 == END_GROUP:
        raise refuse(pos, layout.STRAY_GROUP_END)
    return (tag, *_read_value(data, at, end, pos, tag, depth))


def read_tag(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """Return a tag of at most 32 bits and the position behind it."""
    if pos < end and data[pos] < 0x80:
        return data[pos], pos + 1
    tag, at = read_varint(data, pos, end, pos, _TAG_BYTES)
    if tag > 0xFFFFFFFF:
        raise refuse(pos, layout.BAD_VARINT)
    return tag, at


# Six numbers describe a field under way; an object for each would double the twin's time.
def _read_value(  # noqa: PLR0917 - see above
    data: bytes, at: int, end: int, field: int, tag: int, depth: int
) -> tuple[int, int, int]:
    wire = tag & 7
    if wire == LEN:
        size, at = read_varint(data, at, end, field, _TAG_BYTES)
        if size > end - at:
            raise refuse(field, layout.PAST_END)
        return 0, at, at + size
    if wire == VARINT:
        value, stop = read_varint(data, at, end, field)
        return value, at, stop
    if wire in {FIXED64, FIXED32}:
        stop = at + (8 if wire == FIXED64 else 4)
        if stop > end:
            raise refuse(field, layout.TRUNCATED)
        return 0, at, stop
    if wire == START_GROUP:
        return 0, at, _skip_group(data, at, end, field, tag, depth)
    raise refuse(field, layout.BAD_WIRE_TYPE)


def _skip_group(  # noqa: PLR0917 - see _read_value
    data: bytes, at: int, end: int, field: int, start_tag: int, depth: int
) -> int:
    if depth == 0:
        raise refuse(field, layout.TOO_DEEP)
    while at < end:
        # Inside unknown groups upb does not mind the field number 0, so neither do we.
        tag, value_at = read_tag(data, at, end)
        if tag & 7 == END_GROUP:
            if tag >> 3 != start_tag >> 3:
                raise refuse(at, layout.STRAY_GROUP_END)
            return value_at
        at = _read_value(data, value_at, end, at, tag, depth - 1)[2]
    raise refuse(field, layout.OPEN_GROUP)


def encode_varint(value: int) -> bytes:
    """Return the shortest varint of a value that is not negative."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
