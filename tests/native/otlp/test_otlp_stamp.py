# Stamping in one step: the library and the twin give the same bytes, which are those of scan, match, append.
from collections.abc import Callable
from functools import partial
from random import Random

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from otel_llmprism.native import otlp, otlp_native, otlp_twin_stamp
from otel_llmprism.native.otlp_layout import MalformedRequestError
from otel_llmprism.native.otlp_rule import Scalar, StampRule

FIELDS = otlp.encode_attribute("traces", "new", 7) + otlp.encode_attribute("traces", "text", "ü" * 200)
NAMES = (("*",), ("key", "abc"), ("a*", "nothing"), ("",), ())
VALUES: tuple[Scalar | None, ...] = (None, "abc", b"\xff\xfe", True, 127, -1, 1.5, float("nan"))

needs_library = pytest.mark.skipif(otlp_native.find_scanner() is None, reason="libllmprism is not built here")


def draw_rule(random: Random) -> StampRule:
    where = random.choice([None, "key", "abc"])
    return StampRule(random.choice(NAMES), where, random.choice(VALUES) if where else None, FIELDS)


@needs_library
def test_library_and_twin_stamp_the_same_bytes(make_request: Callable[[Random, str], bytes]) -> None:
    changed = 0
    for seed in range(1500):
        random = Random(seed)
        payload, rule = make_request(random, "traces"), draw_rule(random)
        try:
            otlp.scan(payload, "traces")
        except MalformedRequestError:
            continue
        stamped = otlp_native.stamp_spans(payload, rule)
        assert stamped == otlp_twin_stamp.stamp_spans(payload, rule), seed
        assert otlp_native.stamp_spans(stamped, rule) == stamped, "stamped twice"
        changed += stamped != payload
    assert changed > 50


@pytest.mark.parametrize("stamp", [otlp_native.stamp_spans, otlp_twin_stamp.stamp_spans])
@pytest.mark.parametrize(
    ("equals", "stamped"),
    [(None, [0, 1, 2, 3]), ("1", [0]), (1, [1]), (1.0, [2]), (True, [3]), (2, []), (float("nan"), [])],
)
def test_value_and_type_must_be_the_same(
    stamp: Callable[[bytes, StampRule], bytes], equals: Scalar | None, stamped: list[int]
) -> None:
    if otlp_native.find_scanner() is None and stamp is otlp_native.stamp_spans:
        pytest.skip("libllmprism is not built here")
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    values = (AnyValue(string_value="1"), AnyValue(int_value=1), AnyValue(double_value=1.0))
    for value in (*values, AnyValue(bool_value=True)):
        scope.spans.add(name="a").attributes.add(key="k", value=value)
    scope.spans.add(name="a")
    rule = StampRule(("a",), "k", equals, FIELDS)
    out = ExportTraceServiceRequest.FromString(stamp(request.SerializeToString(), rule))
    spans = out.resource_spans[0].scope_spans[0].spans
    assert [row for row, span in enumerate(spans) if any(a.key == "new" for a in span.attributes)] == stamped


@needs_library
def test_library_counts_what_a_scan_counts(make_request: Callable[[Random, str], bytes]) -> None:
    refused = 0
    for seed in range(600):
        for signal in ("traces", "logs", "metrics"):
            payload = make_request(Random(seed), signal)
            told = tell(partial(otlp_native.scan, payload, signal, otlp.NO_KEYS))
            assert tell(partial(otlp_native.check, payload, signal)) == told
            refused += isinstance(told, str)
    assert refused > 50


def tell(look: Callable[[], otlp.Scan | otlp.RecordCounts]) -> str | tuple[int, int, int]:
    try:
        found = look()
    except MalformedRequestError as error:
        return str(error)
    return found.record_count, found.bad_id_count, found.invalid_utf8_count


def test_number_beyond_64_bits_is_refused_with_its_reason() -> None:
    with pytest.raises(ValueError, match="64 bits"):
        StampRule(("*",), "k", 1 << 63, FIELDS)
