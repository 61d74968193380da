# Who speaks in the ledger records that pass: their resources' attributes by engine and run, so that what the
# sentinel says carries the same. The pipeline thread notes, the sentinel's thread asks. Bounded.
import threading
from collections import OrderedDict
from typing import TypeVar

import numpy as np
from google.protobuf.message import DecodeError
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from otel_llmprism.exporters.otlp_attributes import AttributeValue
from otel_llmprism.native.otlp import RESOURCE_DTYPE, Scan
from otel_llmprism.semconv import resource as names

MAX_RESOURCES = 2000
_MAX_RESOURCE_BYTES = 64 << 10
Key = TypeVar("Key")
Value = TypeVar("Value")
ResourceAttributes = dict[str, AttributeValue]


class ResourceBook:
    """Thread-safe."""

    def __init__(self, max_resources: int = MAX_RESOURCES) -> None:
        self._max_resources = max_resources
        self._lock = threading.Lock()
        self._raw: OrderedDict[bytes, None] = OrderedDict()  # what was read, so that it is read once
        self._known: OrderedDict[tuple[str, str], ResourceAttributes] = OrderedDict()

    def note_request(self, payload: bytes, found: Scan) -> None:
        """Take in the resources of a request with ledger records."""
        rows = np.frombuffer(found.resources, dtype=np.dtype(RESOURCE_DTYPE))
        for offset, length in zip(
            rows["resource_offset"].tolist(), rows["resource_length"].tolist(), strict=True
        ):
            if 0 < length <= _MAX_RESOURCE_BYTES:
                self._note(payload[offset : offset + length])

    def find(self, engine_id: str, run: str) -> ResourceAttributes:
        """Return an engine's attributes; at least its ids."""
        with self._lock:
            known = self._known.get((engine_id, run))
        return dict(known) if known else {names.ENGINE_ID: engine_id, names.ENGINE_RUN: run}

    def _note(self, raw: bytes) -> None:
        with self._lock:
            if raw in self._raw:
                return
            _bound(self._raw, raw, None, self._max_resources)
        try:
            attributes = read_resource(raw)
        except DecodeError:
            return
        key = (str(attributes.get(names.ENGINE_ID, "")), str(attributes.get(names.ENGINE_RUN, "")))
        with self._lock:
            _bound(self._known, key, attributes, self._max_resources)


def read_resource(raw: bytes) -> ResourceAttributes:
    """Return the scalar attributes of an encoded resource, and its lists of texts."""
    resource = Resource.FromString(raw)
    read = ((pair.key, _to_value(pair.value)) for pair in resource.attributes)
    return {key: value for key, value in read if value is not None}


def _to_value(value: AnyValue) -> AttributeValue | None:
    kind = value.WhichOneof("value")
    if kind in {"string_value", "bool_value", "int_value", "double_value", "bytes_value"}:
        scalar: AttributeValue = getattr(value, kind)
        return scalar
    if kind == "array_value":
        return [item.string_value for item in value.array_value.values]
    return None


def _bound(entries: OrderedDict[Key, Value], key: Key, value: Value, limit: int) -> None:
    entries[key] = value
    if len(entries) > limit:
        entries.popitem(last=False)
