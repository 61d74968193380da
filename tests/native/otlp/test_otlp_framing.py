# What is refused and what is not: exactly what upb refuses for its framing.
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_llmprism.native import otlp, otlp_native, otlp_twin
from otel_llmprism.native.otlp_layout import RECORD_DTYPES, WHY
from otel_llmprism.native.otlp_twin_edit import read_places

KEYS = otlp.KeySelection(("key", "abc", ""), ("key", "abc"))
SIGNALS = ("traces", "logs", "metrics")
BOTH_KEYS = (KEYS, otlp.NO_KEYS)
FLIPS = ((0, 7), (1,), (2, 5), (3,))


def varint(value: int, width: int = 0) -> bytes:
    out = bytearray()
    while value > 0x7F or width > 1:
        out.append(value & 0x7F | 0x80)
        value >>= 7
        width -= 1
    return bytes(out) + bytes([value])


def frame(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def span(body: bytes) -> bytes:
    return frame(1, frame(2, frame(2, body)))


def group(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 3) + body + varint(number << 3 | 4)


def nest(wrap: Callable[[bytes], bytes], times: int, leaf: bytes = b"") -> bytes:
    for _ in range(times):
        leaf = wrap(leaf)
    return leaf


def array(leaf: bytes) -> bytes:
    return frame(5, frame(1, leaf))


def histogram(body: bytes) -> bytes:
    return span(frame(9, frame(1, body)))


def exponential(body: bytes) -> bytes:
    return span(frame(10, frame(1, frame(8, body))))


EDGES: dict[str, tuple[str, bytes]] = {
    **{f"a tag of {w} bytes": ("traces", varint(0x0A, w) + b"\0") for w in range(1, 8)},
    **{f"a length of {w} bytes": ("traces", b"\x0a" + varint(0, w)) for w in range(1, 8)},
    **{f"a varint of {w} bytes": ("traces", span(b"\x30" + varint(1, w))) for w in range(1, 13)},
    **{f"an unknown varint of {w} bytes": ("traces", varint(400) + varint(1, w)) for w in range(1, 13)},
    **{f"a tag that ends in {x}": ("traces", b"\x80" * 4 + bytes([x, 0])) for x in (1, 15, 16, 127)},
    **{f"field number 0, wire type {w}": ("traces", bytes([w]) + bytes(8)) for w in range(8)},
    **{f"unknown field, wire type {w}": ("traces", varint(400 | w) + bytes(8)) for w in range(8)},
    **{f"{n} nested groups": ("traces", nest(lambda b: group(50, b), n)) for n in (99, 100, 101, 300)},
    **{f"{n} groups in a span": ("traces", span(nest(lambda b: group(50, b), n))) for n in (97, 98)},
    **{f"{n} arrays": ("traces", span(frame(9, frame(2, nest(array, n))))) for n in (47, 48, 1000)},
    **{f"47 arrays and {x!r}": ("traces", span(frame(9, frame(2, nest(array, 47, x)))))
       for x in (frame(5, b""), group(50, b""), group(50, group(50, b"")))},
    **{f"{n} packed bytes": ("metrics", histogram(frame(6, bytes(n)))) for n in (0, 7, 8, 9, 16)},
    **{f"packed varints {x.hex()}": ("metrics", exponential(frame(2, x)))
       for x in (b"", b"\x80", b"\x80\1", b"\xff" * 9 + b"\2", b"\xff" * 10 + b"\2")},
    "unpacked doubles": ("metrics", histogram(b"\x39" + bytes(8))),
    "an unpacked varint": ("metrics", exponential(b"\x10\x01")),
    "an empty request": ("traces", b""),
    "a group as a known message": ("traces", group(1, b"")),
    "a group without end": ("traces", varint(403)),
    "an end without group": ("traces", varint(404)),
    "a group that another ends": ("traces", varint(403) + varint(412)),
    "a group that ends outside its message": ("traces", frame(1, varint(403)) + varint(404)),
    "field 0 inside a group": ("traces", group(50, b"\0\0")),
    "wire type 6 inside a group": ("traces", group(50, b"\x0e")),
    "a group end with a long tag": ("traces", varint(403) + varint(404, 5)),
    "a length of 2 GiB": ("traces", varint(402) + varint((1 << 31) - 1)),
    "a length of 2^64": ("traces", varint(402) + varint((1 << 64) - 1)),
    "a length of 2^32": ("traces", varint(402) + varint(1 << 32)),
}  # fmt: skip


@pytest.mark.parametrize("edge", EDGES)
def test_an_edge_of_the_wire_format_is_judged_as_upb_judges_it(
    engine: Any, oracle: Callable[[str, bytes], bool], edge: str
) -> None:
    signal, payload = EDGES[edge]
    assert is_accepted(engine, signal, payload) == oracle(signal, payload)


@given(random=st.randoms(use_true_random=True), signal=st.sampled_from(SIGNALS))
@settings(max_examples=400, deadline=None)
def test_generated_requests_are_judged_as_upb_judges_them(
    oracle: Callable[[str, bytes], bool],
    make_request: Callable[[Random, str], bytes],
    random: Random,
    signal: str,
) -> None:
    payload = damage(random, make_request(random, signal))
    expected = oracle(signal, payload)
    assert isinstance(run(otlp_twin.scan, payload, signal), otlp.Scan) == expected
    if otlp_native.find_scanner() is not None:
        assert isinstance(run(otlp_native.scan, payload, signal), otlp.Scan) == expected


@given(random=st.randoms(use_true_random=True), signal=st.sampled_from(SIGNALS))
@settings(max_examples=400, deadline=None)
def test_native_and_twin_agree_byte_for_byte_on_columns_and_errors(
    make_request: Callable[[Random, str], bytes], random: Random, signal: str
) -> None:
    if otlp_native.find_scanner() is None:
        pytest.skip("libllmprism is not built here")
    payload = damage(random, make_request(random, signal))
    assert run(otlp_native.scan, payload, signal) == run(otlp_twin.scan, payload, signal)


@given(
    random=st.randoms(use_true_random=True), signal=st.sampled_from(SIGNALS), keys=st.sampled_from(BOTH_KEYS)
)
@settings(max_examples=300, deadline=None)
def test_a_scan_of_checked_bytes_finds_the_same_and_both_engines_agree(
    make_request: Callable[[Random, str], bytes], random: Random, signal: str, keys: otlp.KeySelection
) -> None:
    payload = damage(random, make_request(random, signal))
    first = run(otlp_twin.scan, payload, signal, keys)
    again = run(partial(otlp_twin.scan, is_checked=True), payload, signal, keys)
    if otlp_native.find_scanner() is not None:
        assert run(partial(otlp_native.scan, is_checked=True), payload, signal, keys) == again
    if isinstance(first, otlp.Scan):
        assert isinstance(again, otlp.Scan)
        assert without_flags(first) == without_flags(again)
        assert (first.values, first.resource_values) == (again.values, again.resource_values)


def without_flags(found: otlp.Scan) -> list[Any]:
    layouts = (otlp.RESOURCE_DTYPE, otlp.SCOPE_DTYPE, RECORD_DTYPES[found.signal])
    tables = [
        np.frombuffer(rows, np.dtype(layout)).copy()
        for rows, layout in zip((found.resources, found.scopes, found.records), layouts, strict=True)
    ]
    for table in tables:
        table["flags"] = 0
    return [table.tobytes() for table in tables]


@pytest.mark.parametrize("signal", SIGNALS)
def test_a_request_cut_off_anywhere_is_judged_alike_and_never_crashes(
    engine: Any, oracle: Callable[[str, bytes], bool], rich_requests: dict[str, bytes], signal: str
) -> None:
    whole = rich_requests[signal]
    refused = 0
    for end in range(len(whole)):
        is_fine = is_accepted(engine, signal, whole[:end])
        assert is_fine == oracle(signal, whole[:end]), end
        refused += not is_fine
    assert refused > len(whole) // 2


@pytest.mark.parametrize("signal", SIGNALS)
def test_a_record_cut_off_anywhere_inside_a_sound_envelope_is_judged_alike(
    engine: Any, oracle: Callable[[str, bytes], bool], rich_requests: dict[str, bytes], signal: str
) -> None:
    found = otlp.scan(rich_requests[signal], signal, KEYS)
    for _, offset, length in read_places(found)[:3]:
        body = rich_requests[signal][offset : offset + length]
        for end in range(length):
            cut = frame(1, frame(2, frame(2, body[:end])))
            assert is_accepted(engine, signal, cut) == oracle(signal, cut), end


@pytest.mark.parametrize("signal", SIGNALS)
def test_a_flipped_bit_anywhere_is_judged_alike_and_never_crashes(
    engine: Any, oracle: Callable[[str, bytes], bool], rich_requests: dict[str, bytes], signal: str
) -> None:
    whole = rich_requests[signal]
    for place in range(len(whole)):
        for bit in FLIPS[place % 4]:
            flipped = whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :]
            assert is_accepted(engine, signal, flipped) == oracle(signal, flipped), (place, bit)


def test_an_error_tells_where_the_innermost_unreadable_field_starts(engine: Any) -> None:
    payload = frame(1, frame(2, frame(2, frame(5, b"name") + b"\x2a\x09x")))
    with pytest.raises(otlp.MalformedRequestError, match="runs past the end") as caught:
        engine.scan(payload, "traces", KEYS)
    assert (caught.value.offset, caught.value.why) == (12, WHY[7])
    assert payload[12] == 0x2A


def test_text_that_is_not_utf8_is_counted_not_refused(engine: Any) -> None:
    bad = [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"plain but then \x80"]
    good = [b"", b"ascii", "h\u00e9".encode(), "\u20ac".encode(), "\U0010ffff".encode(), b"\xed\x9f\xbf"]
    for text in bad + good:
        found = engine.scan(span(frame(5, text)), "traces", KEYS)
        assert found.invalid_utf8_count == (text in bad), text


def damage(random: Random, payload: bytes) -> bytes:
    kind = random.random()
    if not payload or kind < 0.6:
        return payload
    place = random.randrange(len(payload))
    if kind < 0.75:
        return payload[:place]
    return payload[:place] + bytes([payload[place] ^ 1 << random.randrange(8)]) + payload[place + 1 :]


def run(
    scan: Callable[..., otlp.Scan], payload: bytes, signal: str, keys: otlp.KeySelection = KEYS
) -> otlp.Scan | tuple[int, str]:
    try:
        return scan(payload, signal, keys)
    except otlp.MalformedRequestError as error:
        return error.offset, error.why


def is_accepted(engine: Any, signal: str, payload: bytes) -> bool:
    return isinstance(run(engine.scan, payload, signal), otlp.Scan)
