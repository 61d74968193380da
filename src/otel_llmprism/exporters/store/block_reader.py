# Rows of the span table -> spans with their bytes, resource and scope. Keeps the last few blocks
# decompressed, since spans that are asked for together were mostly stored together.
import sqlite3
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from otel_llmprism.exporters.store.block_codec import Block, decode_block
from otel_llmprism.exporters.store.decode import (
    Attributes,
    ScopeView,
    SpanDetail,
    decode_resource,
    decode_scope,
    decode_span,
)
from otel_llmprism.exporters.store.stored import StoredSpan

COLUMNS = (
    "span.trace_id, span.span_id, span.parent_id, service.text, name.text, span.kind, span.status, "
    "span.start_ns, span.duration_ns, span.block, span.offset, span.length, span.resource, span.scope"
)
JOINS = "span JOIN text AS service ON service.id = span.service JOIN text AS name ON name.id = span.name"

_MAX_BLOCKS = 8
_NOTHING = SpanDetail({}, (), (), "", "")


@dataclass(frozen=True, slots=True)
class Place:
    """Where in which block a span is."""

    block: int
    offset: int
    length: int
    resource: int
    scope: int


class BlockReader:
    """For one question: reads through its connection, forgotten with it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._blocks: OrderedDict[int, Block] = OrderedDict()
        self._resources: dict[tuple[int, int], Attributes] = {}
        self._held: dict[tuple[int, tuple[bytes, ...]], bool] = {}
        self._scopes: dict[tuple[int, int], ScopeView] = {}

    def read_span(self, row: Sequence[Any]) -> StoredSpan:
        """Return the span of one row of COLUMNS; what cannot be decoded is shown without details."""
        place = Place(*row[9:14])
        raw = self.read_raw(place)
        try:
            detail = decode_span(raw)
        except ValueError:
            detail = _NOTHING
        trace_id, span_id, parent_id, service, name, kind, status, start_ns, duration_ns = row[:9]
        return StoredSpan(
            *(trace_id, span_id, parent_id, service, name, kind, status, start_ns, duration_ns),
            *(raw, detail, self.read_resource(place), self._read_scope(place)),
        )

    def read_raw(self, place: Place) -> bytes:
        """Return the bytes of the span as they came."""
        return self._read_block(place.block).payload[place.offset : place.offset + place.length]

    def holds_all(self, block: int, needles: tuple[bytes, ...]) -> bool:
        """Tell whether the block's bytes hold every one of `needles` anywhere."""
        known = self._held.get((block, needles))
        if known is None:
            payload = self._read_block(block).payload
            known = self._held[block, needles] = all(needle in payload for needle in needles)
        return known

    def read_resource(self, place: Place) -> Attributes:
        """Return the attributes of the span's resource."""
        key = (place.block, place.resource)
        if key not in self._resources:
            block = self._read_block(place.block)
            offset, length = block.resources[place.resource]
            self._resources[key] = decode_resource(block.payload[offset : offset + length])
        return self._resources[key]

    def _read_scope(self, place: Place) -> ScopeView:
        key = (place.block, place.scope)
        if key not in self._scopes:
            block = self._read_block(place.block)
            offset, length = block.scopes[place.scope]
            self._scopes[key] = decode_scope(block.payload[offset : offset + length])
        return self._scopes[key]

    def _read_block(self, block_id: int) -> Block:
        block = self._blocks.get(block_id)
        if block is None:
            row = self._connection.execute(
                "SELECT data, frames FROM block WHERE id = ?", (block_id,)
            ).fetchone()
            if row is None:
                raise ValueError(f"block {block_id} of the store is missing")
            block = self._blocks[block_id] = decode_block(*row)
            if len(self._blocks) > _MAX_BLOCKS:
                self._blocks.popitem(last=False)
        self._blocks.move_to_end(block_id)
        return block
