# A request told of by two processes comes out the same, however their rings were drained and cut.
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from otel_llmprism.exporters.request_spans import EndedRequest
from otel_llmprism.native import ring_records as records
from otel_llmprism.native.ring_records import Finish, RequestEvent
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ring import RingAssembler
from otel_llmprism.service.exporter_process.request_book import HOLD_NS, RequestBook

HANDLE = 7
LATER = 1_000 * HOLD_NS


@dataclass(frozen=True)
class Story:
    front_end: list[bytes]
    core: list[bytes]


@st.composite
def draw_story(draw: st.DrawFn) -> Story:
    times = iter(sorted(draw(st.lists(st.integers(10, 10**6), min_size=14, max_size=14, unique=True))))
    core = [
        records.pack_request_arrived(HANDLE, next(times), b"T" * 16, b"S" * 8, bytes(8), "r", sampled=True),
        records.pack_request_event(HANDLE, next(times), RequestEvent.QUEUED),
    ]
    tokens = st.integers(0, 5000)
    if draw(st.booleans()):
        core.append(records.pack_request_event(HANDLE, next(times), RequestEvent.SCHEDULED, 0, draw(tokens)))
        for _ in range(draw(st.integers(0, 3))):
            core += [
                records.pack_request_event(HANDLE, next(times), event, 1, draw(tokens))
                for event in (RequestEvent.PREEMPTED, RequestEvent.RESUMED)
            ]
    front_end = []
    if draw(st.booleans()):
        front_end.append(records.pack_request_event(HANDLE, next(times), RequestEvent.FIRST_TOKEN))
    has_core_end = draw(st.booleans())
    if has_core_end:
        totals = (draw(tokens), draw(tokens), draw(tokens), 3, draw(st.integers(0, 3)))
        core.append(records.pack_request_ended(HANDLE, next(times), *totals, draw(st.sampled_from(Finish))))
    if not has_core_end or draw(st.booleans()):
        finish = draw(st.sampled_from(Finish))
        front_end.append(records.pack_request_event(HANDLE, next(times), RequestEvent.RESPONDED, 0, finish))
    return Story(front_end, core)


def read_out(drains: list[tuple[int, bytes]]) -> EndedRequest:
    counters = Counters()
    book, assembler = RequestBook(counters), RingAssembler(counters)
    for source, slots in drains:
        assembler.consume(slots, source)
        while (tables := assembler.take(0)) is not None:
            book.note_tables(tables)
    (live,) = book.release(LATER)
    assert list(book.release_all(LATER)) == []
    assert counters.read_all() == []
    return live.life.to_ended()


@settings(deadline=None, max_examples=150)
@given(draw_story(), st.data())
def test_a_request_comes_out_the_same_however_its_rings_are_drained(
    story: Story, data: st.DataObject
) -> None:
    expected = read_out([(0, b"".join(story.core)), (1, b"".join(story.front_end))])
    left = {0: list(story.core), 1: list(story.front_end)}
    drains = []
    while any(left.values()):
        source = data.draw(st.sampled_from([source for source, slots in left.items() if slots]))
        count = data.draw(st.integers(1, len(left[source])))
        drains.append((source, b"".join(left[source][:count])))
        left[source] = left[source][count:]
    assert read_out(drains) == expected
