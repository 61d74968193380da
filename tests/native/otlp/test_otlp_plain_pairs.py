# The library reads ordinary attributes on a short way of its own: it must tell, count and refuse what the
# twin does, also one bit beside the ordinary.
from random import Random

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from otel_llmprism.native import otlp_native, otlp_twin
from otel_llmprism.native.otlp_layout import KeySelection, MalformedRequestError, Scan

KEYS = KeySelection(("k", "key", "ü"), ("k", "key"))
VALUES = (
    AnyValue(string_value=""),
    AnyValue(string_value="text"),
    AnyValue(string_value="ü"),
    AnyValue(string_value="x" * 200),
    AnyValue(bool_value=True),
    AnyValue(int_value=0),
    AnyValue(int_value=8080),
    AnyValue(int_value=(1 << 56) - 1),
    AnyValue(int_value=1 << 56),
    AnyValue(int_value=-1),
    AnyValue(double_value=1.5),
    AnyValue(bytes_value=b"\xff"),
    AnyValue(),
)

pytestmark = pytest.mark.skipif(otlp_native.find_scanner() is None, reason="libllmprism is not built here")


def draw_request(random: Random) -> bytes:
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    span = resource.scope_spans.add().spans.add(trace_id=b"t" * 16, span_id=b"s" * 8)
    for attributes in (resource.resource.attributes, span.attributes):
        for _ in range(3):
            attributes.add(key=random.choice(["", "k", "key", "ü", "other"]), value=random.choice(VALUES))
    return request.SerializeToString()


def look(scan: object, payload: bytes, *, is_checked: bool) -> Scan | str:
    try:
        found: Scan = scan(payload, "traces", KEYS, is_checked=is_checked)  # type: ignore[operator]
    except MalformedRequestError as error:
        return str(error)
    return found


def test_ordinary_attributes_and_their_neighbours_are_told_alike() -> None:
    refused = 0
    for seed in range(4000):
        random = Random(seed)
        payload = bytearray(draw_request(random))
        if seed % 4:
            payload[random.randrange(len(payload))] ^= 1 << random.randrange(8)
        told = look(otlp_twin.scan, bytes(payload), is_checked=False)
        assert look(otlp_native.scan, bytes(payload), is_checked=False) == told, seed
        refused += isinstance(told, str)
        if not isinstance(told, str):
            again = look(otlp_native.scan, bytes(payload), is_checked=True)
            assert isinstance(again, Scan)
            assert (again.values, again.resource_values) == (told.values, told.resource_values), seed
    assert 100 < refused < 3000
