from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ledger import LedgerBody, LedgerReader, LedgerSource
from otel_llmprism.semconv.ledger import EVENT_HOST, EVENT_LEDGER
from otel_llmprism.service.sentinel.news import News
from otel_llmprism.testing.evaluation.recording import TimedBody
from otel_llmprism.testing.evaluation.replay import ReplayState, cut_bodies, feed_bodies, pass_time

if TYPE_CHECKING:
    from otel_llmprism.service.sentinel.core import SentinelCore

S = 1_000_000_000


@dataclass
class CoreStandIn:
    """Notes when it was told what."""

    calls: list[tuple[str, int]] = field(default_factory=list)

    def take(self, batch: Any, arrived_ns: int) -> News:
        self.calls.append(("take", arrived_ns))
        return News()

    def advance(self, now_ns: int) -> News:
        self.calls.append(("advance", now_ns))
        return News()


@dataclass
class ReaderStandIn:
    def read_bodies(self, bodies: list[LedgerBody]) -> list[LedgerBody]:
        return bodies


@dataclass
class TrainerStandIn:
    is_frozen: bool = False


def build_state(now_ns: int = 0) -> tuple[ReplayState, CoreStandIn]:
    core = CoreStandIn()
    reader = cast("LedgerReader", ReaderStandIn())
    return ReplayState(cast("SentinelCore", core), reader, Counters(), TrainerStandIn(), now_ns), core


def build_body(at_s: float, event: str = EVENT_LEDGER) -> TimedBody:
    body = LedgerBody(LedgerSource("e", "r", "n"), event, int(at_s * 2), b"")
    return TimedBody(int(at_s * S), int(at_s * S) + 1000 * S, body)


def test_bodies_arrive_when_they_were_written_and_time_passes_with_them() -> None:
    state, core = build_state()
    feed_bodies(state, [build_body(1.0), build_body(1.1), build_body(1.6)])
    assert core.calls == [
        ("take", 1001 * S),
        ("advance", 1001 * S),
        ("take", int(1001.1 * S)),
        ("take", int(1001.6 * S)),
        ("advance", int(1001.6 * S)),
    ]


def test_time_passes_in_a_pause_of_the_data() -> None:
    state, core = build_state(1001 * S)
    feed_bodies(state, [build_body(4.0)])
    told = [now_ns for call, now_ns in core.calls if call == "advance"]
    assert told == [int(at * S) for at in (1001.5, 1002, 1002.5, 1003, 1004)]


def test_no_time_passes_over_what_was_cut_out() -> None:
    state, core = build_state(1001 * S)
    feed_bodies(state, [build_body(100.0)])
    assert core.calls == [("take", 1100 * S), ("advance", 1100 * S)]


def test_stretch_begins_with_a_chunk_of_steps() -> None:
    bodies = [
        build_body(1, EVENT_LEDGER),
        build_body(2, EVENT_HOST),
        build_body(3),
        build_body(4, EVENT_HOST),
    ]
    assert cut_bodies(bodies, 2 * S, 5 * S) == bodies[2:]
    assert cut_bodies(bodies, 1 * S, 3 * S) == bodies[:2]


def test_copied_state_goes_its_own_way() -> None:
    state, core = build_state(1001 * S)
    other = state.copy()
    pass_time(other, 2 * S)
    assert (state.now_ns, other.now_ns) == (1001 * S, 1003 * S)
    assert core.calls == []
    assert other.counters is state.counters
