# The extension and the Python path are twins in what they say of a request, whatever its id and its carrier.
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_llmprism.instrumentation.frameworks.vllm.carrier import (
    CARRIER_KEY,
    HOST_MARK,
    Carrier,
    write_carrier,
)
from otel_llmprism.instrumentation.frameworks.vllm.request_book import RequestBook
from otel_llmprism.instrumentation.request_records import RequestRecorder
from otel_llmprism.instrumentation.sampling import build_sampler
from otel_llmprism.instrumentation.trace_context import SpanContext
from otel_llmprism.native.extension import load_extension
from otel_llmprism.native.ring import RingReader, RingWriter
from otel_llmprism.native.ring_records import Finish, RequestEvent, derive_request_handle

pytestmark = pytest.mark.skipif(load_extension() is None, reason="the extension is not built here")

plain = st.text(st.characters(codec="utf-8"), max_size=60)
wild = st.one_of(plain, st.text(max_size=300), st.text("aé中😀", min_size=30, max_size=200))
ids16, ids8 = st.binary(min_size=16, max_size=16), st.binary(min_size=8, max_size=8)
contexts = st.builds(SpanContext, ids16.filter(any), ids8, ids8, st.booleans(), st.booleans())
times = st.integers(0, 1 << 60)
counts = st.one_of(st.integers(0, 1 << 20), st.sampled_from([(1 << 32) - 1, 1 << 32, -1, 1 << 70]))
# Without a context Python draws one: no two runs would say the same.
carriers = st.builds(
    Carrier, times, plain, wild, is_local_parent=st.booleans(), has_front_end=st.booleans(), context=contexts
)


class ListRing:
    def __init__(self) -> None:
        self.records: list[bytes] = []

    def add_hook_time(self, _duration_ns: int, /) -> None:
        pass

    def put(self, record: bytes, /) -> bool:
        self.records.append(record)
        return True


def tell(act: Callable[[RequestRecorder], None]) -> tuple[bytes, bytes, tuple[int, int]]:
    """Return what an act leaves on the extension's path and on Python's, and how often each failed."""
    plain_ring = ListRing()
    python = RequestRecorder(plain_ring, build_sampler({}), reads_context=True)
    with TemporaryDirectory() as folder:
        writer = RingWriter.create(Path(folder) / "a.ring", 256)
        native = RequestRecorder(writer, build_sampler({}), reads_context=True)
        act(native)
        act(python)
        reader = RingReader.open(writer.path)
        told = reader.drain(256)
        reader.close()
        writer.close()
    return told, b"".join(plain_ring.records), (native.hook.failures, python.hook.failures)


@settings(max_examples=60, deadline=None)
@given(request_id=wild, carrier=carriers, now_ns=times, other=st.booleans())
def test_both_say_the_same_of_an_arrival(request_id: str, carrier: Carrier, now_ns: int, other: bool) -> None:
    lives = []

    def act(recorder: RequestRecorder) -> None:
        book = RequestBook(recorder, dict, is_traced=False)
        headers = {CARRIER_KEY: write_carrier(carrier), **({"x": "y"} if other else {})}
        request = SimpleNamespace(request_id=request_id, trace_headers=headers)
        book.admit(request, now_ns)
        lives.append((request.trace_headers, [life.has_front_end for life in book._lives.values()]))

    told, expected, failures = tell(act)
    assert told == expected
    assert failures[0] == failures[1]
    assert lives[0] == lives[1] == ({"x": "y"} if other else None, [carrier.has_front_end])


@settings(max_examples=60, deadline=None)
@given(
    event=st.sampled_from(RequestEvent),
    time_ns=times,
    tokens=st.one_of(  # fewer wrong ones than switch a hook off
        st.dictionaries(wild, counts, max_size=4), st.dictionaries(plain, st.integers(0, 9), max_size=20)
    ),
    step=st.integers(-1, 1 << 50),
)
def test_both_say_the_same_of_events(
    event: RequestEvent, time_ns: int, tokens: dict[str, int], step: int
) -> None:
    def act(recorder: RequestRecorder) -> None:
        recorder.record_events(event, time_ns, tokens, step)
        for name, count in tokens.items():
            recorder.record_event(name, event, time_ns, step, count)

    told, expected, failures = tell(act)
    assert told == expected
    assert failures[0] == failures[1]


@settings(max_examples=60, deadline=None)
@given(request_id=wild, time_ns=times, totals=st.tuples(*[counts] * 5), finish=st.sampled_from(Finish))
def test_both_say_the_same_of_an_end(
    request_id: str, time_ns: int, totals: tuple[int, ...], finish: Finish
) -> None:
    names = ("prompt_tokens", "output_tokens", "cached_tokens", "steps", "preemptions")

    def act(recorder: RequestRecorder) -> None:
        recorder.record_end(request_id, time_ns, finish, **dict(zip(names, totals, strict=True)))

    told, expected, failures = tell(act)
    assert told == expected
    assert failures[0] == failures[1]


def list_spoiled(whole: str) -> Iterator[str]:
    """Yield carriers that Python refuses or reads in its own way."""
    fields = whole.split("|")
    for at in range(len(fields)):
        yield "|".join(fields[:at])
        for wrong in ("", " 1", "-1", "1_0", "9" * 30, "zz", "A" * 64):
            yield "|".join([*fields[:at], wrong, *fields[at + 1 :]])


def test_a_carrier_out_of_the_ordinary_is_left_to_python() -> None:
    module: Any = load_extension()
    context = SpanContext(b"t" * 16, b"s" * 8, bytes(8), is_sampled=True)
    whole = write_carrier(Carrier(5, "", "e", has_front_end=True, context=context))
    ring = module.SlotRing(bytearray(256 + 256 * 128))
    assert module.put_arrival(ring, "a", whole, HOST_MARK, 7) == 6
    free = {5, 6}  # traceparent and external id may be any text
    for spoiled in list_spoiled(whole):
        changed = [
            at for at, (one, other) in enumerate(zip(whole.split("|"), spoiled.split("|"), strict=False))
            if one != other
        ]  # fmt: skip
        is_whole = spoiled.count("|") == whole.count("|") and set(changed) <= free
        assert (module.put_arrival(ring, "a", spoiled, HOST_MARK, 7) is not None) == is_whole, spoiled
    assert module.put_arrival(ring, "a", whole, "", 7) is None
    assert module.put_arrival(object(), "a", whole, HOST_MARK, 7) is None
    assert module.put_arrival(ring, "a", whole, HOST_MARK, -7) is None
    assert module.put_arrival(ring, b"a", whole, HOST_MARK, 7) is None
    assert module.put_arrival() is None


@given(st.one_of(wild, st.text(st.characters(codec="utf-8"), max_size=400)))
def test_handles_are_the_same_on_both_paths(request_id: str) -> None:
    module: Any = load_extension()
    assert module.derive_handle(request_id) == derive_request_handle(request_id)


def test_a_handle_of_no_text_is_refused() -> None:
    module: Any = load_extension()
    for wrong in (b"a", 1, None):
        with pytest.raises(TypeError):
            module.derive_handle(wrong)
