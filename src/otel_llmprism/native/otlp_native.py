# The OTLP scanner and editor of libllmprism behind ctypes. Same functions and results as otlp_twin and
# otlp_twin_edit; what the library allocates is copied into bytes and freed here.
import ctypes
from array import array
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from otel_llmprism.native.library import load_library
from otel_llmprism.native.otlp_layout import (
    RECORD_DTYPES,
    RESOURCE_DTYPE,
    SCOPE_DTYPE,
    VALUE_DTYPE,
    WHY,
    KeySelection,
    MalformedRequestError,
    RecordCounts,
    Scan,
    build_struct,
)
from otel_llmprism.native.otlp_rule import StampRule

_SIGNALS: Final = {"traces": 0, "logs": 1, "metrics": 2}
_ROW_SIZES: Final = {signal: build_struct(columns).size for signal, columns in RECORD_DTYPES.items()}
_RESOURCE_SIZE, _SCOPE_SIZE, _VALUE_SIZE = (
    build_struct(columns).size for columns in (RESOURCE_DTYPE, SCOPE_DTYPE, VALUE_DTYPE)
)
_NO_MEMORY, _FOREIGN_SCAN, _GROWN_TOO_LARGE = 100, 101, 102
_CUT_RANGE: Final = 1  # leave out whatever holds no kept record

_allocate_bytes: Final = ctypes.pythonapi.PyBytes_FromStringAndSize
_allocate_bytes.argtypes = (ctypes.c_char_p, ctypes.c_ssize_t)
_allocate_bytes.restype = ctypes.py_object


class _Result(ctypes.Structure):
    _fields_ = (
        ("resources", ctypes.c_void_p),
        ("scopes", ctypes.c_void_p),
        ("records", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("resource_values", ctypes.c_void_p),
        ("resource_count", ctypes.c_uint64),
        ("scope_count", ctypes.c_uint64),
        ("record_count", ctypes.c_uint64),
        ("bad_id_count", ctypes.c_uint64),
        ("invalid_utf8_count", ctypes.c_uint64),
        ("error_offset", ctypes.c_uint64),
        ("error_code", ctypes.c_uint64),
    )


class _Edit(ctypes.Structure):
    _fields_ = (
        ("editor", ctypes.c_void_p),  # NULL without an error: nothing changes
        ("size", ctypes.c_uint64),
        ("error_offset", ctypes.c_uint64),
        ("error_code", ctypes.c_uint64),
    )


class _Tables(ctypes.Structure):
    _fields_ = (
        ("payload", ctypes.c_char_p),
        ("payload_size", ctypes.c_uint64),
        ("resources", ctypes.c_char_p),
        ("scopes", ctypes.c_char_p),
        ("records", ctypes.c_char_p),
        ("resource_count", ctypes.c_uint64),
        ("scope_count", ctypes.c_uint64),
        ("record_count", ctypes.c_uint64),
        ("signal", ctypes.c_uint64),
    )


class _Edits(ctypes.Structure):
    _fields_ = (
        ("blob", ctypes.c_char_p),
        ("blob_size", ctypes.c_uint64),
        ("record_indexes", ctypes.c_char_p),
        ("sizes", ctypes.c_char_p),
        ("count", ctypes.c_uint64),
    )


class _Rule(ctypes.Structure):
    _fields_ = (
        ("names", ctypes.c_char_p),
        ("name_count", ctypes.c_uint64),
        ("key", ctypes.c_char_p),
        ("key_count", ctypes.c_uint64),
        ("value_type", ctypes.c_uint64),
        ("value_bits", ctypes.c_uint64),
        ("text", ctypes.c_char_p),
        ("text_size", ctypes.c_uint64),
        ("fields", ctypes.c_char_p),
        ("fields_size", ctypes.c_uint64),
    )


@cache
def find_scanner() -> ctypes.CDLL | None:
    """Return the library with the scanner in it, its signatures set; None without one."""
    library = load_library()
    if library is None or not hasattr(library, "llmprism_otlp_scan"):
        return None
    text, number = ctypes.c_char_p, ctypes.c_uint64
    kinds = (_Result, _Edit, _Tables, _Edits)
    result, edit, tables, edits = (ctypes.POINTER(kind) for kind in kinds)
    library.llmprism_otlp_scan.argtypes = (text, *(number,) * 3, text, number, text, number, result)
    library.llmprism_otlp_scan.restype = None
    library.llmprism_otlp_check.argtypes = (text, number, number, result)
    library.llmprism_otlp_check.restype = None
    library.llmprism_otlp_release.argtypes = (result,)
    library.llmprism_otlp_release.restype = None
    library.llmprism_otlp_select.argtypes = (tables, text, number, edit)
    library.llmprism_otlp_select.restype = None
    library.llmprism_otlp_append.argtypes = (tables, edits, edit)
    library.llmprism_otlp_append.restype = None
    library.llmprism_otlp_stamp.argtypes = (text, number, ctypes.POINTER(_Rule), edit)
    library.llmprism_otlp_stamp.restype = None
    for emit in (library.llmprism_otlp_emit, library.llmprism_otlp_emit_stamps):
        emit.argtypes = (edit, text)
        emit.restype = None
    return library


def _scanner() -> ctypes.CDLL:
    library = find_scanner()
    if library is None:
        raise RuntimeError("libllmprism has no OTLP scanner; rebuild it with `make native`")
    return library


def scan(payload: bytes, signal: str, keys: KeySelection, *, is_checked: bool = False) -> Scan:
    """Return where everything is, or raise MalformedRequestError; the GIL is free meanwhile."""
    library = _scanner()
    result = _Result()
    record_keys, resource_keys = keys.record_packed, keys.resource_packed
    library.llmprism_otlp_scan(
        payload,
        len(payload),
        _SIGNALS[signal],
        is_checked,
        record_keys,
        len(keys.record_keys),
        resource_keys,
        len(keys.resource_keys),
        result,
    )
    try:
        _raise_error(result.error_code, result.error_offset)
        return _copy_result(result, payload, signal, keys)
    finally:
        library.llmprism_otlp_release(result)


def check(payload: bytes, signal: str) -> RecordCounts:
    """Return the counts of a scan, or raise what it raises; makes no rows."""
    result = _Result()
    _scanner().llmprism_otlp_check(payload, len(payload), _SIGNALS[signal], result)
    _raise_error(result.error_code, result.error_offset)
    return RecordCounts(result.record_count, result.bad_id_count, result.invalid_utf8_count)


def _copy_result(result: _Result, payload: bytes, signal: str, keys: KeySelection) -> Scan:
    records, resources = result.record_count, result.resource_count
    return Scan(
        signal,
        len(payload),
        _copy(result.resources, resources * _RESOURCE_SIZE),
        _copy(result.scopes, result.scope_count * _SCOPE_SIZE),
        _copy(result.records, records * _ROW_SIZES[signal]),
        _copy(result.values, records * len(keys.record_keys) * _VALUE_SIZE),
        _copy(result.resource_values, resources * len(keys.resource_keys) * _VALUE_SIZE),
        records,
        result.bad_id_count,
        result.invalid_utf8_count,
    )


def select(payload: bytes, scan: Scan, keep: bytes) -> bytes:
    """Keep the records whose byte in `keep` is not 0."""
    edit = _Edit()
    _scanner().llmprism_otlp_select(_list_tables(payload, scan), keep, 0, edit)
    return _take_edit(payload, edit)


def cut(payload: bytes, scan: Scan, first: int, last: int) -> bytes:
    """Return the records [first, last) in the envelopes that hold them, and nothing else."""
    edit = _Edit()
    keep = bytes(first) + b"\1" * (last - first) + bytes(scan.record_count - last)
    _scanner().llmprism_otlp_select(_list_tables(payload, scan), keep, _CUT_RANGE, edit)
    return _take_edit(payload, edit)


def append_fields(payload: bytes, scan: Scan, edits: Sequence[tuple[int, bytes]]) -> bytes:
    """Append the fields that their record does not have yet."""
    ordered = sorted(edits, key=lambda edit: edit[0])
    indexes = array("I", [index for index, _ in ordered]).tobytes()
    sizes = array("I", [len(blob) for _, blob in ordered]).tobytes()
    blob = b"".join([blob for _, blob in ordered])
    edit = _Edit()
    fields = _Edits(blob, len(blob), indexes, sizes, len(ordered))
    _scanner().llmprism_otlp_append(_list_tables(payload, scan), fields, edit)
    return _take_edit(payload, edit)


def stamp_spans(payload: bytes, rule: StampRule) -> bytes:
    """Append the rule's fields to the spans that it matches; none: `payload` itself."""
    packed = _Rule(
        rule.packed_names,
        len(rule.names),
        rule.keys.record_packed,
        len(rule.keys.record_keys),
        rule.value_type,
        rule.value_bits,
        rule.text,
        len(rule.text),
        rule.fields,
        len(rule.fields),
    )
    edit = _Edit()
    library = _scanner()
    library.llmprism_otlp_stamp(payload, len(payload), packed, edit)
    return _take_edit(payload, edit, library.llmprism_otlp_emit_stamps)


def _list_tables(payload: bytes, scan: Scan) -> _Tables:
    return _Tables(
        payload,
        len(payload),
        scan.resources,
        scan.scopes,
        scan.records,
        len(scan.resources) // _RESOURCE_SIZE,
        len(scan.scopes) // _SCOPE_SIZE,
        scan.record_count,
        _SIGNALS[scan.signal],
    )


def _take_edit(payload: bytes, edit: _Edit, emit: Any = None) -> bytes:
    _raise_error(edit.error_code, edit.error_offset)
    if edit.editor is None:
        return payload
    out: bytes = b""
    try:
        # Room nobody else has seen yet: the one moment at which bytes may be written.
        out = _allocate_bytes(None, edit.size)
        return out
    finally:
        (emit or _scanner().llmprism_otlp_emit)(edit, out or None)


def _raise_error(code: int, offset: int) -> None:
    if code == _NO_MEMORY:
        raise MemoryError("no memory for the scan of this request")
    if code == _FOREIGN_SCAN:
        raise ValueError("this scan is of another payload")
    if code == _GROWN_TOO_LARGE:
        raise ValueError("the edited request would be larger than 2 GiB")
    if code:
        raise MalformedRequestError(offset, WHY[code])


def _copy(place: int | None, size: int) -> bytes:
    return ctypes.string_at(place, size) if place and size else b""
