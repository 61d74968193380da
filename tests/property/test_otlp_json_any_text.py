# Whatever JSON comes, the reader gives protobuf bytes or one MalformedJsonError, and nothing else.
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from otel_llmprism.model.signals import Signal
from otel_llmprism.receivers.otlp_json import MalformedJsonError, encode_json_request

KEYS = (
    *("traceId", "timeUnixNano", "severityNumber", "body", "attributes", "key", "value", "stringValue"),
    *("intValue", "doubleValue", "boolValue", "bytesValue", "arrayValue", "kvlistValue", "values", "other"),
)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.sampled_from(["NaN", "-Infinity", "5b8e", "1e5", "-1", "18446744073709551615", "\ud800"])
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=30,
)


@settings(max_examples=400, deadline=None)
@given(TREES)
def test_any_tree_is_read_or_refused(tree: Any) -> None:
    text = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [tree]}]}]}).encode()
    try:
        payload = encode_json_request(Signal.LOGS, text)
    except MalformedJsonError:
        return
    assert ExportLogsServiceRequest.FromString(payload).SerializeToString() == payload


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    for signal in Signal:
        try:
            encode_json_request(signal, text)
        except MalformedJsonError:
            continue
