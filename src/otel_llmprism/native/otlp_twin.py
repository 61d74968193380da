# The scanner without a compiler: an OTLP request becomes rows of otlp_layout, byte for byte what
# native/src/otlp_scan.cpp makes, errors included. Some hundred times slower.
from functools import partial
from typing import Final

from otel_llmprism.native import otlp_layout as layout
from otel_llmprism.native.otlp_layout import KeySelection, Layout, Scan
from otel_llmprism.native.otlp_twin_record import Row, read_log, read_metric, read_span
from otel_llmprism.native.otlp_twin_value import AnyValue, KeyValue, read_key_value
from otel_llmprism.native.otlp_twin_walk import Request, check_message, enter
from otel_llmprism.native.otlp_twin_wire import read_field, refuse

_READERS: Final = {"traces": read_span, "logs": read_log, "metrics": read_metric}
_CELL: Final = layout.build_struct(layout.VALUE_DTYPE)


def scan(payload: bytes, signal: str, keys: KeySelection, *, is_checked: bool = False) -> Scan:
    """Return where everything is, or raise MalformedRequestError. Linear in the payload."""
    if len(payload) > layout.MAX_PAYLOAD:
        raise refuse(0, layout.TOO_LARGE)
    return _Scanner(Request(payload, is_checked), signal, keys).scan_request()


class _Rows:
    """Rows of one layout, and beside each the cells of the keys selected for it."""

    def __init__(self, columns: Layout, keys: tuple[str, ...]) -> None:
        self.names = [column[0] for column in columns]
        self.packer = layout.build_struct(columns)
        self.defaults: list[int | bytes] = [b"" if len(column) == 3 else 0 for column in columns]
        self.keys = {key.encode(): index for index, key in enumerate(keys)}
        self.count = 0
        self.rows = bytearray()
        self.cells = bytearray()

    def open_row(self, field: int) -> int:
        if self.count >= layout.MAX_ROWS or (self.count + 1) * len(self.keys) > layout.MAX_CELLS:
            raise refuse(field, layout.TOO_MANY)
        self.count += 1
        self.rows += bytes(self.packer.size)
        self.cells += bytes(_CELL.size * len(self.keys))
        return self.count - 1

    def fill_row(self, index: int, row: Row) -> None:
        defaults = zip(self.names, self.defaults, strict=True)
        values = [row.get(name, default) for name, default in defaults]
        self.packer.pack_into(self.rows, index * self.packer.size, *values)

    def note_value(self, index: int, key: bytes, value: AnyValue) -> None:
        column = self.keys.get(key)
        if column is None:
            return
        place = (index * len(self.keys) + column) * _CELL.size
        if _CELL.unpack_from(self.cells, place)[3] == layout.ABSENT:
            _CELL.pack_into(self.cells, place, value.bits, value.offset, value.length, value.type, 0)


class _Scanner:
    def __init__(self, request: Request, signal: str, keys: KeySelection) -> None:
        self.signal = signal
        self.request = request
        self.bad_records = 0
        self.resources = _Rows(layout.RESOURCE_DTYPE, keys.resource_keys)
        self.scopes = _Rows(layout.SCOPE_DTYPE, ())
        self.records = _Rows(layout.RECORD_DTYPES[signal], keys.record_keys)

    def scan_request(self) -> Scan:
        pos = 0
        while pos < len(self.request.data):
            tag, _, at, stop = read_field(self.request.data, pos, len(self.request.data), layout.MAX_DEPTH)
            if tag == 0x0A:
                self._read_resource(pos, at, stop, enter(layout.MAX_DEPTH, pos))
            pos = stop
        return Scan(
            signal=self.signal,
            payload_size=len(self.request.data),
            resources=bytes(self.resources.rows),
            scopes=bytes(self.scopes.rows),
            records=bytes(self.records.rows),
            values=bytes(self.records.cells),
            resource_values=bytes(self.resources.cells),
            record_count=self.records.count,
            bad_id_count=self.bad_records,
            invalid_utf8_count=self.request.invalid_utf8,
        )

    def _read_resource(self, field: int, start: int, end: int, depth: int) -> None:
        index = self.resources.open_row(field)
        row: Row = {"start": field, "offset": start, "length": end - start}
        row |= {"first_scope": self.scopes.count, "first_record": self.records.count, "attribute_count": 0}
        bad_before = self.request.invalid_utf8
        bad_below = 0
        pos = start
        while pos < end:
            tag, _, at, stop = read_field(self.request.data, pos, end, depth)
            if tag == 0x0A:
                _note_piece(row, "resource", at, stop)
                row["attribute_count"] += self._read_attributes_of(index, at, stop, enter(depth, pos))
            elif tag == 0x12:
                before = self.request.invalid_utf8
                self._read_scope(index, pos, at, stop, enter(depth, pos))
                bad_below += self.request.invalid_utf8 - before
            elif tag == 0x1A:
                self._note_text(row, "schema_url", at, stop)
            pos = stop
        row["scope_count"] = self.scopes.count - row["first_scope"]
        row["record_count"] = self.records.count - row["first_record"]
        self._mark_utf8(row, bad_before + bad_below)
        self.resources.fill_row(index, row)

    def _read_attributes_of(self, index: int, start: int, end: int, depth: int) -> int:
        """Read a Resource message; return how many attributes it has."""
        count = 0
        pos = start
        while pos < end:
            tag, _, at, stop = read_field(self.request.data, pos, end, depth)
            if tag == 0x0A:
                count += 1
                self._note_attribute(self.resources, index, at, stop, enter(depth, pos))
            elif tag == 0x1A:
                check_message(at, stop, enter(depth, pos), "EntityRef", self.request)
            pos = stop
        return count

    def _read_scope(self, resource: int, field: int, start: int, end: int, depth: int) -> None:
        index = self.scopes.open_row(field)
        row: Row = {"start": field, "offset": start, "length": end - start, "resource": resource}
        row |= {"first_record": self.records.count, "attribute_count": 0}
        bad_before = self.request.invalid_utf8
        bad_below = 0
        pos = start
        while pos < end:
            tag, _, at, stop = read_field(self.request.data, pos, end, depth)
            if tag == 0x0A:
                _note_piece(row, "scope", at, stop)
                self._read_scope_message(row, at, stop, enter(depth, pos))
            elif tag == 0x12:
                before = self.request.invalid_utf8
                place: Row = {"start": pos, "offset": at, "length": stop - at}
                self._read_record(place | {"resource": resource, "scope": index}, enter(depth, pos))
                bad_below += self.request.invalid_utf8 - before
            elif tag == 0x1A:
                self._note_text(row, "schema_url", at, stop)
            pos = stop
        row["record_count"] = self.records.count - row["first_record"]
        self._mark_utf8(row, bad_before + bad_below)
        self.scopes.fill_row(index, row)

    def _read_scope_message(self, row: Row, start: int, end: int, depth: int) -> None:
        pos = start
        while pos < end:
            tag, _, at, stop = read_field(self.request.data, pos, end, depth)
            if tag in {0x0A, 0x12}:
                self._note_text(row, "name" if tag == 0x0A else "version", at, stop)
            elif tag == 0x1A:
                row["attribute_count"] += 1
                check_message(at, stop, enter(depth, pos), "KeyValue", self.request)
            pos = stop

    def _read_record(self, row: Row, depth: int) -> None:
        index = self.records.open_row(row["start"])
        bad_utf8, bad_ids = self.request.invalid_utf8, self.request.bad_ids
        note = partial(self._note_attribute, self.records, index)
        is_bad = _READERS[self.signal](row, depth, self.request, note)
        row["flags"] = layout.RECORD_BAD_ID * (is_bad or self.request.bad_ids > bad_ids)
        self.bad_records += row["flags"]
        self._mark_utf8(row, bad_utf8)
        self.records.fill_row(index, row)

    def _note_attribute(self, rows: _Rows, index: int, start: int, end: int, depth: int) -> None:
        if self.request.is_checked and not rows.keys:
            return
        pair: KeyValue = read_key_value(start, end, depth, self.request)
        rows.note_value(index, self.request.data[pair.key_start : pair.key_end], pair.value)

    def _note_text(self, row: Row, name: str, start: int, end: int) -> None:
        self.request.check_utf8(start, end)
        row[f"{name}_offset"], row[f"{name}_length"] = start, end - start

    def _mark_utf8(self, row: Row, before: int) -> None:
        if self.request.invalid_utf8 > before:
            row["flags"] = row.get("flags", 0) | layout.BAD_UTF8


def _note_piece(row: Row, name: str, start: int, end: int) -> None:
    if row.get(f"has_{name}"):
        row["flags"] = row.get("flags", 0) | layout.IN_PIECES
    row[f"has_{name}"] = 1
    row[f"{name}_offset"], row[f"{name}_length"] = start, end - start
