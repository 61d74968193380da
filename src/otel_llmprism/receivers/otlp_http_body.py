# The body of an OTLP/HTTP request -> the bytes it stands for, never more than the limit. A body that
# would expand beyond it is refused before it does. Knows no HTTP server.
import io
import zlib

import zstandard

ENCODINGS = ("gzip", "zstd", "identity", "")
_GZIP = 31  # zlib's window bits for a gzip header
_MAX_GZIP_MEMBERS = 64  # each costs a copy of what follows it
# What RFC 8878 asks every HTTP decoder to support; a larger window only costs memory.
_MAX_WINDOW_BYTES = 8 << 20


class BodyTooLargeError(ValueError):
    """The body stands for more bytes than the limit."""


class BodyDamagedError(ValueError):
    """The body is not what its Content-Encoding says."""


def decompress_body(body: bytes, encoding: str, max_bytes: int) -> bytes:
    """Return the decoded body; raises BodyTooLargeError or BodyDamagedError."""
    if encoding == "gzip":
        return _decompress_gzip(body, max_bytes)
    if encoding == "zstd":
        return _decompress_zstd(body, max_bytes)
    return body


def _decompress_gzip(body: bytes, max_bytes: int) -> bytes:
    """Read every member of the file, as RFC 1952 has it."""
    whole = bytearray()
    rest = body
    for _ in range(_MAX_GZIP_MEMBERS):
        member = zlib.decompressobj(_GZIP)
        try:
            whole += member.decompress(rest, max_bytes - len(whole) + 1)
        except zlib.error as error:
            raise BodyDamagedError(f"the gzip body is damaged: {error}") from error
        if len(whole) > max_bytes:
            raise BodyTooLargeError(f"the gzip body expands to more than {max_bytes} bytes")
        if not member.eof:
            raise BodyDamagedError("the gzip body is cut short")
        rest = member.unused_data
        if not rest:
            return bytes(whole)
    raise BodyDamagedError(f"the gzip body has more than {_MAX_GZIP_MEMBERS} members")


def _decompress_zstd(body: bytes, max_bytes: int) -> bytes:
    """Read the one frame of the body."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
    try:
        said_bytes = zstandard.frame_content_size(body)
        if said_bytes > max_bytes:
            raise BodyTooLargeError(f"the zstd body expands to {said_bytes} bytes, above {max_bytes}")
        if said_bytes >= 0:
            return decompressor.decompress(body, max_output_size=max_bytes, allow_extra_data=False)
        return _decompress_unsized_zstd(decompressor, body, max_bytes)
    except zstandard.ZstdError as error:
        raise BodyDamagedError(f"the zstd body is damaged: {error}") from error


def _decompress_unsized_zstd(decompressor: zstandard.ZstdDecompressor, body: bytes, max_bytes: int) -> bytes:
    # The reader is bounded but takes a cut or a second frame in silence; the other tells, unbounded.
    # Together they are safe: only what the first found small enough is given to the second.
    with decompressor.stream_reader(io.BytesIO(body)) as reader:
        if len(reader.read(max_bytes + 1)) > max_bytes:
            raise BodyTooLargeError(f"the zstd body expands to more than {max_bytes} bytes")
    frame = decompressor.decompressobj()
    whole = frame.decompress(body)
    if not frame.eof:
        raise BodyDamagedError("the zstd body is cut short")
    if frame.unused_data:
        raise BodyDamagedError("the zstd body has more than one frame; send one")
    return whole
