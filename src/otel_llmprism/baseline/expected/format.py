# A model as bytes and back: magic, version, a JSON header with all sizes, the arrays little-endian one after
# the other, a SHA-256 over all. Any bytes are safe to load: what is not exactly a model is refused.
import hashlib
import json
import struct
from typing import Any

import numpy as np

from otel_llmprism.baseline.expected.format_checks import AnyArray, FormatReader
from otel_llmprism.baseline.expected.format_parts import describe_part, read_part
from otel_llmprism.baseline.expected.model import ExpectedTime
from otel_llmprism.baseline.expected.part import KindPart
from otel_llmprism.baseline.expected.settings import BaselineFormatError

MAGIC = b"LLMPEXPT"
VERSION = 1
OLDEST = 1  # a reader accepts the version before its own; there is none yet
PREFIX = struct.Struct("<8sII")  # magic, version, bytes of the header
DIGEST_BYTES = 32
MAX_BYTES = 64 << 20
MAX_HEADER_BYTES = 1 << 20
MAX_PARTS = 32
MAX_NOTES = 64
MAX_NOTE_CHARACTERS = 500


def seal_model(parts: tuple[KindPart, ...], notes: tuple[str, ...]) -> ExpectedTime:
    """Return the model of these parts with the version that its content has."""
    notes = tuple(note[:MAX_NOTE_CHARACTERS] for note in notes[:MAX_NOTES])
    return ExpectedTime(hashlib.sha256(_write_body(parts, notes)).hexdigest()[:12], parts, notes)


def dump_expected(model: ExpectedTime) -> bytes:
    """Return the model as bytes that load_expected reads back to the same answers."""
    body = _write_body(model.parts, model.notes)
    return body + hashlib.sha256(body).digest()


def load_expected(raw: bytes) -> ExpectedTime:
    """Return the model, or raise BaselineFormatError; nothing of the bytes is evaluated."""
    if len(raw) < PREFIX.size + DIGEST_BYTES or len(raw) > MAX_BYTES:
        raise BaselineFormatError(f"{len(raw)} bytes are no expected-time model")
    magic, version, header_bytes = PREFIX.unpack_from(raw)
    if magic != MAGIC:
        raise BaselineFormatError("these bytes are no expected-time model: they begin otherwise")
    if not OLDEST <= version <= VERSION:
        raise BaselineFormatError(
            f"the model has format {version}, this program reads {OLDEST} to {VERSION}: fit it again"
        )
    body, digest = raw[:-DIGEST_BYTES], raw[-DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        raise BaselineFormatError("the model is damaged: its digest does not match")
    if header_bytes > min(MAX_HEADER_BYTES, len(body) - PREFIX.size):
        raise BaselineFormatError("the model's header is longer than the model")
    header = _parse_header(body[PREFIX.size : PREFIX.size + header_bytes])
    reader = FormatReader(body[PREFIX.size + header_bytes :])
    parts = _read_parts(reader, header)
    notes = reader.read_texts(header, "notes", MAX_NOTES, MAX_NOTE_CHARACTERS)
    reader.finish()
    return ExpectedTime(hashlib.sha256(body).hexdigest()[:12], parts, notes)


def _write_body(parts: tuple[KindPart, ...], notes: tuple[str, ...]) -> bytes:
    arrays: list[AnyArray] = []
    header = {"parts": [describe_part(part, arrays) for part in parts], "notes": list(notes)}
    text = json.dumps(header, allow_nan=False, sort_keys=True).encode()
    data = [np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes() for array in arrays]
    return PREFIX.pack(MAGIC, VERSION, len(text)) + text + b"".join(data)


def _parse_header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BaselineFormatError("the model's header is no JSON") from error
    if not isinstance(header, dict):
        raise BaselineFormatError("the model's header is no JSON object")
    return header


def _read_parts(reader: FormatReader, header: dict[str, Any]) -> tuple[KindPart, ...]:
    told = reader.read_objects(header, "parts", MAX_PARTS)
    parts = tuple(read_part(reader, part) for part in told)
    if len({part.kind for part in parts}) != len(parts):
        raise BaselineFormatError("the model has two parts for one kind")
    return parts
