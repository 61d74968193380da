# Which spans are to be stamped, prepared once for many requests: names or prefixes, and perhaps an attribute
# with a value. Mirrors llmprism_otlp_rule; knows no request.
import struct
from collections.abc import Sequence

from otel_llmprism.native.otlp_layout import KeySelection

Scalar = str | int | float | bool | bytes

ANY_VALUE, STRING, BOOL, INT, DOUBLE, BYTES = 0, 1, 2, 3, 4, 7
_MAX_INT = (1 << 63) - 1


class StampRule:
    """A span needs one of the names (exact, or a prefix that ends in *) and, if asked for, the attribute.

    `equals` None: the attribute may have any value; else value and type must be the same. `fields` are
    whole attribute fields (encode_attribute), appended as they are.
    """

    __slots__ = ("fields", "keys", "names", "packed_names", "text", "value_bits", "value_type")

    def __init__(
        self, names: Sequence[str], where_attribute: str | None, equals: Scalar | None, fields: bytes
    ) -> None:
        self.names = tuple((name.removesuffix("*").encode(), name.endswith("*")) for name in names)
        self.packed_names = b"".join(
            struct.pack("<BI", is_prefix, len(name)) + name for name, is_prefix in self.names
        )
        self.keys = KeySelection(() if where_attribute is None else (where_attribute,))
        self.value_type, self.value_bits, self.text = _pack_value(equals)
        self.fields = fields

    def allows_name(self, name: bytes) -> bool:
        return any(name.startswith(text) if is_prefix else name == text for text, is_prefix in self.names)

    def allows_value(self, value_type: int, bits: int, text: bytes) -> bool:
        """Tell whether an attribute's cell and its bytes in the payload are what is asked for."""
        if self.value_type == ANY_VALUE:
            return value_type != ANY_VALUE
        if value_type != self.value_type:
            return False
        if value_type in (STRING, BYTES):
            return text == self.text
        if value_type == DOUBLE:
            return _to_double(bits) == _to_double(self.value_bits)
        return bits == self.value_bits


def _pack_value(value: Scalar | None) -> tuple[int, int, bytes]:
    """Return type, bits and text of a value as the scanner tells them."""
    if value is None:
        return ANY_VALUE, 0, b""
    if isinstance(value, bool):
        return BOOL, int(value), b""
    if isinstance(value, int):
        if not -_MAX_INT - 1 <= value <= _MAX_INT:
            raise ValueError(f"{value} does not fit in the 64 bits that an attribute has")
        return INT, value & ((1 << 64) - 1), b""
    if isinstance(value, float):
        return DOUBLE, int.from_bytes(struct.pack("<d", value), "little"), b""
    return (STRING, 0, value.encode()) if isinstance(value, str) else (BYTES, 0, value)


def _to_double(bits: int) -> float:
    number: float = struct.unpack("<d", bits.to_bytes(8, "little"))[0]
    return number
