# What the tests of the wire scanner share: both engines, upb with strings as bytes (so that only framing
# makes it refuse), and a generator of requests as no SDK would send them.
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_llmprism.native import otlp_native, otlp_twin, otlp_twin_edit

REQUESTS: dict[str, Any] = {
    "traces": ExportTraceServiceRequest,
    "logs": ExportLogsServiceRequest,
    "metrics": ExportMetricsServiceRequest,
}
FIXED64 = {FieldDescriptor.TYPE_DOUBLE, FieldDescriptor.TYPE_FIXED64, FieldDescriptor.TYPE_SFIXED64}
FIXED32 = {FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_FIXED32, FieldDescriptor.TYPE_SFIXED32}
NESTED = FieldDescriptor.TYPE_MESSAGE
BLOBS = {NESTED, FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES}
TEXTS = [
    b"",
    b"key",
    b"abc",
    b"\xff\xfe",
    b"\1" * 16,
    b"\2" * 8,
    b"\0" * 16,
    "h\u00e9".encode(),
    b"a longer text",
]
NUMBERS = [0, 1, 2, 127, 128, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1]


@pytest.fixture(scope="session", params=["native", "twin"])
def engine(request: pytest.FixtureRequest) -> SimpleNamespace:
    if request.param == "twin":
        edit = otlp_twin_edit
        return SimpleNamespace(
            scan=otlp_twin.scan, select=edit.select, cut=edit.cut, append_fields=edit.append_fields
        )
    if otlp_native.find_scanner() is None:
        pytest.skip("libllmprism is not built here")
    native = otlp_native
    return SimpleNamespace(
        scan=native.scan, select=native.select, cut=native.cut, append_fields=native.append_fields
    )


@pytest.fixture(scope="session")
def messages() -> dict[str, Any]:
    """The export requests as opentelemetry-proto has them."""
    return REQUESTS


@pytest.fixture(scope="session")
def lenient() -> dict[str, Any]:
    """The export requests, their strings being bytes."""
    return {signal: _build_without_utf8(request.DESCRIPTOR) for signal, request in REQUESTS.items()}


@pytest.fixture(scope="session")
def oracle(lenient: dict[str, Any]) -> Callable[[str, bytes], bool]:
    """Tells whether upb accepts the framing of a request."""

    def is_accepted(signal: str, payload: bytes) -> bool:
        try:
            lenient[signal].FromString(payload)
        except DecodeError:
            return False
        return True

    return is_accepted


@pytest.fixture(scope="session")
def rich_requests() -> dict[str, bytes]:
    """One well-formed request a signal that uses every message below it."""
    return {signal: _fill_message(request()).SerializeToString() for signal, request in REQUESTS.items()}


@pytest.fixture(scope="session")
def make_request() -> Callable[[Random, str], bytes]:
    """Makes a request with unknown fields, groups, odd order, long varints; half of them badly framed."""

    def make(random: Random, signal: str) -> bytes:
        maker = _Maker(random, is_wild=random.random() < 0.5)
        pieces = random.choice([1, 1, 3])
        return b"".join(maker.make_message(REQUESTS[signal].DESCRIPTOR) for _ in range(pieces))

    return make


def _build_without_utf8(descriptor: Descriptor) -> Any:
    pool = descriptor_pool.DescriptorPool()
    done: set[str] = set()

    def forget_strings(message: descriptor_pb2.DescriptorProto) -> None:
        for field in message.field:
            if field.type == field.TYPE_STRING:
                field.type = field.TYPE_BYTES
        for nested in message.nested_type:
            forget_strings(nested)

    def add(file: FileDescriptor) -> None:
        if file.name in done:
            return
        done.add(file.name)
        for dependency in file.dependencies:
            add(dependency)
        copy = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(copy)
        for message in copy.message_type:
            forget_strings(message)
        pool.Add(copy)

    add(descriptor.file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(descriptor.full_name))


def _fill_message(message: Any, depth: int = 0, choice: int = 0) -> Any:
    """Set every field; of a oneof the member number `choice`."""
    for field in message.DESCRIPTOR.fields:
        oneof = field.containing_oneof
        if oneof is not None and oneof.fields[choice % len(oneof.fields)] is not field:
            continue
        if field.type != NESTED:
            _set_scalar(message, field)
        elif field.is_repeated:
            for each in range(_count_choices(field.message_type) if depth <= 4 else 1):
                _fill_message(getattr(message, field.name).add(), depth + 1, each)
        else:
            getattr(message, field.name).SetInParent()
            _fill_message(getattr(message, field.name), depth + 1, choice)
    return message


def _set_scalar(message: Any, field: FieldDescriptor) -> None:
    if field.type == FieldDescriptor.TYPE_BYTES:
        value: Any = bytes(range(1, 17 if "trace" in field.name else 9))
    elif field.type == FieldDescriptor.TYPE_STRING:
        value = field.name
    else:
        value = 1 + (field.type == FieldDescriptor.TYPE_DOUBLE) / 2
        value = value if field.type == FieldDescriptor.TYPE_DOUBLE else int(value)
    if field.is_repeated:
        getattr(message, field.name).extend([value, value])
    else:
        setattr(message, field.name, value)


def _count_choices(descriptor: Descriptor) -> int:
    inner = [
        field.message_type for field in descriptor.fields if field.message_type and not field.is_repeated
    ]
    return max([len(oneof.fields) for kind in [descriptor, *inner] for oneof in kind.oneofs], default=1)


def _encode_varint(value: int, width: int = 0) -> bytes:
    out = bytearray()
    while value > 0x7F or width > 1:
        out.append(value & 0x7F | 0x80)
        value >>= 7
        width -= 1
    out.append(value)
    return bytes(out)


@dataclass(frozen=True, slots=True)
class _Maker:
    """Makes messages field by field. A wild one also breaks the framing now and then."""

    random: Random
    is_wild: bool

    def make_message(self, descriptor: Descriptor, depth: int = 0) -> bytes:
        count = self.random.choice([0, 1, 2, 3, 4, 6] if depth > 2 else [1, 2, 3]) if depth < 12 else 0
        return b"".join(self._make_field(descriptor, depth) for _ in range(count))

    def _make_field(self, descriptor: Descriptor, depth: int) -> bytes:
        known = list(descriptor.fields)
        field = self.random.choice(known) if known and self.random.random() < 0.92 else None
        if field is None:
            number = self.random.choice([60, 17, 1000, (1 << 29) - 1, self.random.randint(1, 20)])
            number = 0 if self._breaks(0.01) else number
            wire = self.random.choice([0, 1, 2, 3, 5])
        else:
            number, wire = field.number, self._choose_wire(field)
        wire = self.random.randint(0, 7) if self._breaks(0.01) else wire
        tag = self._draw_varint(number << 3 | wire)
        if wire == 3:
            return tag + self.make_message(descriptor, depth + 1) + self._draw_varint(number << 3 | 4)
        return tag + self._make_value(field, wire, depth)

    def _choose_wire(self, field: FieldDescriptor) -> int:
        if self.random.random() < 0.02:
            return self.random.choice([0, 1, 2, 3, 5])
        if field.type in BLOBS or (field.is_repeated and self.random.random() < 0.7):
            return 2
        return 1 if field.type in FIXED64 else 5 if field.type in FIXED32 else 0

    def _make_value(self, field: FieldDescriptor | None, wire: int, depth: int) -> bytes:
        if wire == 0:
            return self._draw_varint(self.random.choice(NUMBERS))
        if wire in {1, 5}:
            return self.random.randbytes(8 if wire == 1 else 4)
        if wire != 2:
            return b""
        body = self._make_body(field, depth)
        size = max(0, len(body) + (self.random.choice([-1, 1]) if self._breaks(0.005) else 0))
        return self._draw_varint(size) + body

    def _make_body(self, field: FieldDescriptor | None, depth: int) -> bytes:
        if field is not None and field.message_type is not None:
            return self.make_message(field.message_type, depth + 1)
        if field is not None and field.type in FIXED64:
            return b"123" if self._breaks(0.05) else self.random.randbytes(8 * self.random.randint(0, 3))
        if field is not None and field.type == FieldDescriptor.TYPE_UINT64:
            numbers = b"".join(self._draw_varint(self.random.choice(NUMBERS)) for _ in range(3))
            return numbers + b"\x80" if self._breaks(0.05) else numbers
        return self.random.choice(TEXTS)

    def _draw_varint(self, value: int) -> bytes:
        """Of the shortest width, or a longer one that every reader must take."""
        return _encode_varint(value, 6 if self._breaks(0.003) else self.random.choice([0, 0, 0, 0, 2, 3, 5]))

    def _breaks(self, probability: float) -> bool:
        return self.is_wild and self.random.random() < probability
