import gzip

import pytest
import zstandard

from otel_llmprism.receivers.otlp_http_body import BodyDamagedError, BodyTooLargeError, decompress_body

LIMIT = 1000


def compress_unsized(text: bytes) -> bytes:
    """Make a zstd frame that does not say how long its content is, as streaming clients do."""
    stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    return stream.compress(text) + stream.flush()


@pytest.fixture(params=["gzip", "zstd", "zstd-unsized"])
def codec(request: pytest.FixtureRequest) -> tuple[str, object]:
    compress = {"gzip": gzip.compress, "zstd": zstandard.compress, "zstd-unsized": compress_unsized}
    return request.param.partition("-")[0], compress[request.param]


def test_content_up_to_the_limit_comes_out_whole(codec: tuple[str, object]) -> None:
    encoding, compress = codec
    assert callable(compress)
    for size in (0, 1, LIMIT):
        assert decompress_body(compress(b"a" * size), encoding, LIMIT) == b"a" * size


def test_content_beyond_the_limit_is_refused(codec: tuple[str, object]) -> None:
    encoding, compress = codec
    assert callable(compress)
    for size in (LIMIT + 1, 50 * 1024 * 1024):
        with pytest.raises(BodyTooLargeError):
            decompress_body(compress(b"a" * size), encoding, LIMIT)


def test_cut_and_damaged_content_is_refused(codec: tuple[str, object]) -> None:
    encoding, compress = codec
    assert callable(compress)
    whole = compress(bytes(range(200)))
    for body in (whole[:-1], whole[:20], whole[:3], b"", b"plain text", whole + b"tail"):
        with pytest.raises(BodyDamagedError):
            decompress_body(body, encoding, LIMIT)


def test_second_gzip_member_is_read_and_a_second_zstd_frame_is_refused_not_lost() -> None:
    twice = gzip.compress(b"") + gzip.compress(b"a") + gzip.compress(b"b")
    assert decompress_body(twice, "gzip", LIMIT) == b"ab"
    for compress in (zstandard.compress, compress_unsized):
        with pytest.raises(BodyDamagedError):
            decompress_body(compress(b"a") + compress(b"b"), "zstd", LIMIT)


def test_thousands_of_gzip_members_are_refused() -> None:
    with pytest.raises(BodyDamagedError, match="more than 64 members"):
        decompress_body(gzip.compress(b"") * 5000, "gzip", LIMIT)


def test_window_beyond_eight_mebibytes_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    body = stream.compress(b"a") + stream.flush()
    with pytest.raises(BodyDamagedError):
        decompress_body(body, "zstd", LIMIT)


def test_body_without_encoding_is_left_alone() -> None:
    assert decompress_body(b"abc", "", LIMIT) == b"abc"
    assert decompress_body(b"abc", "identity", LIMIT) == b"abc"
