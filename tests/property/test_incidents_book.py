# Whatever happens in whatever order, incidents live one life after another, and the book stays bounded.
from collections import defaultdict
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from otel_llmprism.diagnose import DiagnosisConfig
from otel_llmprism.diagnose.incidents.book import IncidentBook
from otel_llmprism.diagnose.incidents.incident import Diagnosed, Incident
from otel_llmprism.diagnose.kinds import Domain, FindingKind
from otel_llmprism.model.findings import Affected, Finding, FindingState, Subject

S = 1_000_000_000
START = 1_700_000_000 * S
CONFIG = DiagnosisConfig(max_incidents=6)
ENGINES = ("a", "b", "c", "d")
KINDS = (FindingKind.CPU_CONTENTION, FindingKind.STEP_REGRESSION, FindingKind.SLOW_WORKER)

moves = st.lists(
    st.tuples(
        st.sampled_from(["cross", "rename", "dismiss", "wait", "wait", "back"]),
        st.sampled_from(ENGINES),
        st.sampled_from(KINDS),
        st.integers(1, 200),
    ),
    max_size=120,
)


def build_diagnosed(kind: FindingKind, engine: str) -> Diagnosed:
    subject = Subject("host", "h") if kind is FindingKind.CPU_CONTENTION else Subject("engine", engine)
    return Diagnosed(kind, subject, 0.9, 0.9, "words", (), Affected())


def build_incident(kind: FindingKind, engine: str, now: int) -> Incident:
    return Incident(
        id="",
        domain=Domain.STEPS,
        engine_id=engine,
        run="r",
        diagnosed=build_diagnosed(kind, engine),
        onset_ns=now - S,
        opened_ns=now,
        updated_ns=now,
        last_over_ns=now,
        share=0.3,
        engines=(engine,),
    )


def play(script: list[tuple[str, str, FindingKind, int]]) -> tuple[IncidentBook, list[Finding], int]:
    numbers = count()
    book = IncidentBook(CONFIG, lambda: f"i{next(numbers)}")
    now = START
    for move, engine, kind, seconds in script:
        claimed = book.find_claiming(engine, Domain.STEPS, now)
        if move == "cross" and claimed is not None:
            claimed.last_over_ns = now
        elif move == "cross":
            diagnosed = build_diagnosed(kind, engine)
            if not book.is_barred(diagnosed, engine, Domain.STEPS, 0.3, now):
                book.open(build_incident(kind, engine, now), now)
        elif move == "rename" and claimed is not None:
            book.update(claimed, build_diagnosed(kind, claimed.engine_id), now)
        elif move == "dismiss" and claimed is not None:
            book.dismiss(claimed, now)
        elif move == "wait":
            now += seconds * S
        elif move == "back":
            now -= min(seconds, 5) * S
        list(book.close_quiet(now))
        assert len(book.incidents) <= CONFIG.max_incidents
    return book, book.told, now


@settings(max_examples=150, deadline=None)
@given(moves)
def test_each_id_opens_updates_and_closes_in_turn(script: list[tuple[str, str, FindingKind, int]]) -> None:
    _, told, _ = play(script)
    by_id: dict[str, list[Finding]] = defaultdict(list)
    for one in told:
        by_id[one.id].append(one)
    for states in by_id.values():
        is_open, occurrence = False, -1
        for one in states:
            if one.state is FindingState.OPEN:
                assert not is_open
                occurrence += 1
                assert one.occurrence == occurrence
                is_open = True
            else:
                assert is_open
                is_open = one.state is FindingState.UPDATED
            assert (one.closed_ns is not None) == (one.state is FindingState.CLOSED)


@settings(max_examples=150, deadline=None)
@given(moves)
def test_no_two_open_incidents_are_the_same(script: list[tuple[str, str, FindingKind, int]]) -> None:
    book, _, _ = play(script)
    keys = [incident.key for incident in book.incidents.values() if incident.is_open]
    assert len(keys) == len(set(keys))


@settings(max_examples=150, deadline=None)
@given(moves)
def test_all_that_is_left_alone_closes(script: list[tuple[str, str, FindingKind, int]]) -> None:
    book, _, now = play(script)
    list(book.close_quiet(now + 61 * S))
    assert not any(incident.is_open for incident in book.incidents.values())
    list(book.close_quiet(now + 800 * S))
    assert book.incidents == {}


@settings(max_examples=150, deadline=None)
@given(moves)
def test_nothing_comes_back_after_ten_minutes(script: list[tuple[str, str, FindingKind, int]]) -> None:
    _, told, _ = play(script)
    closed_ns: dict[str, int] = {}
    for one in told:
        if one.state is FindingState.CLOSED and one.closed_ns is not None:
            closed_ns[one.id] = one.closed_ns
        elif one.state is FindingState.OPEN and one.id in closed_ns:
            assert one.opened_ns - closed_ns[one.id] <= 600 * S
