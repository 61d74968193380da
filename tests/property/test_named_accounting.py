# An engine that says what changed instead of having its batch looked through: what its schedules decode to,
# through recorder, ring records and assembler, is what it scheduled, also where it names too few or adds up
# wrong. Requests wait, are preempted, come back, get several tokens, and records are dropped.
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from otel_llmprism.instrumentation.keeping import StepKeeper, StepTicket
from otel_llmprism.instrumentation.step_records import NO_STEP, EngineState, StepRecorder
from otel_llmprism.model.members import RunningState
from otel_llmprism.model.steps import MEMBERS_COMPLETE, LedgerTables
from otel_llmprism.native.ring_records import Mode, derive_request_handle
from otel_llmprism.pipeline.counters import Counters
from otel_llmprism.receivers.ring import RingAssembler, RingAssemblerConfig

NAMES = [f"request-{number}" for number in range(6)]
Served = dict[int, tuple[int, bool]]  # by handle: tokens, whether they are prompt


@dataclass
class Step:
    """What a scheduler decides; names are made to fit who is running."""

    leaves: list[str]
    joins: list[str]  # each with a prompt
    waits: list[str]
    chunks: list[str]  # already running, but still (or, preempted, again) in prefill
    counts: list[int]  # of those that decode: one, or several with speculation
    wrong_total: int
    names_joined: bool
    is_dropped: bool


@dataclass
class MemoryRing:
    """Keeps records; drops those of steps that the test wants lost."""

    slots: bytearray = field(default_factory=bytearray)
    is_full: bool = False

    def put(self, record: bytes, /) -> bool:
        if not self.is_full:
            self.slots += record
        return not self.is_full

    def add_hook_time(self, duration_ns: int, /) -> None:
        pass


some_names = st.lists(st.sampled_from(NAMES), max_size=3, unique=True)
rarely = st.sampled_from([False, False, False, False, True])
schedules = st.lists(
    st.builds(
        Step,
        leaves=some_names,
        joins=some_names,
        waits=some_names,
        chunks=some_names,
        counts=st.sampled_from([[1], [1], [1, 3], [2]]),
        wrong_total=st.sampled_from([0, 0, 0, 0, 1, -1, 1000]),
        names_joined=st.sampled_from([True, True, True, False]),
        is_dropped=rarely,
    ),
    min_size=1,
    max_size=80,
)


class Schedule:
    """Replays drawn steps against a recorder and remembers what was scheduled."""

    def __init__(self) -> None:
        self.ring = MemoryRing()
        self.recorder = StepRecorder(self.ring, StepKeeper("e", bytes(16), "sample"), Mode.SENTINEL)
        self.running: set[str] = set()
        self.served: dict[int, Served] = {}

    def run_step(self, step: Step) -> None:
        left = [name for name in step.leaves if name in self.running]
        self.running -= set(left)
        self.recorder.record_left(left)
        joined = [name for name in step.joins if name not in self.running]
        self.running |= set(joined)
        tokens = {
            name: step.counts[place % len(step.counts)]
            for place, name in enumerate(sorted(self.running))
            if name in joined or name not in step.waits
        }
        prefill = [*joined, *(name for name in step.chunks if name in tokens and name not in joined)]
        tokens |= {name: 1 + 7 * place for place, name in enumerate(prefill)}
        ticket = self._record(step, tokens, prefill, joined)
        if ticket.step_id >= 0 and not step.is_dropped:
            self.served[ticket.step_id] = {
                derive_request_handle(name): (count, name in prefill) for name, count in tokens.items()
            }

    def _record(
        self, step: Step, tokens: dict[str, int], prefill: list[str], joined: list[str]
    ) -> StepTicket:
        self.ring.is_full = step.is_dropped
        start_ns = 1000 * (1 + len(self.served))
        prefill_tokens = sum(tokens[name] for name in prefill)
        total_tokens = sum(tokens.values())
        if total_tokens + step.wrong_total - prefill_tokens != len(tokens) - len(prefill):
            # Else it would look like one token each, which only the look at all now and then finds out.
            total_tokens += step.wrong_total
        ticket = self.recorder.record_scheduled(
            tokens,
            prefill,
            EngineState(),
            start_ns,
            start_ns + 1,
            joined=joined if step.names_joined else joined[1:],
            total_tokens=total_tokens,
            prefill_tokens=prefill_tokens,
        )
        self.ring.is_full = False
        if not step.is_dropped:
            self.recorder.record_output(ticket, start_ns + 9)
        return ticket


def read_served(tables: LedgerTables) -> dict[int, Served]:
    state = RunningState(tables.running)
    found = {}
    for row, step in enumerate(tables.steps.step.tolist()):
        begin, end = tables.members.step_row.searchsorted([row, row + 1]).tolist()
        state.apply(tables.members, slice(begin, end))
        here = state.list_members(int(tables.steps.lane[row]), tables.members, slice(begin, end))
        columns = (here.handle.tolist(), here.tokens.tolist(), here.is_prefill.tolist())
        found[step] = {
            handle: (tokens, bool(prompt)) for handle, tokens, prompt in zip(*columns, strict=True)
        }
    return found


@settings(deadline=None, max_examples=150)
@given(schedules)
def test_what_is_told_as_changes_decodes_to_what_was_scheduled(steps: list[Step]) -> None:
    schedule = Schedule()
    for step in steps:
        schedule.run_step(step)
    assert schedule.recorder.hook.failures == 0
    assembler = RingAssembler(Counters(), RingAssemblerConfig(expected_ranks=0))
    assembler.consume(bytes(schedule.ring.slots))
    found: dict[int, Served] = {}
    while (tables := assembler.take(0, is_final=True)) is not None:
        assert all(flags & MEMBERS_COMPLETE for flags in tables.steps.flags.tolist())
        found |= read_served(tables)
    assert found == schedule.served


def test_an_empty_batch_is_no_step_however_it_is_told() -> None:
    schedule = Schedule()
    ticket = schedule.recorder.record_scheduled(
        {}, (), EngineState(), 1, 2, joined=(), total_tokens=0, prefill_tokens=0
    )
    assert ticket == NO_STEP
    assert not schedule.ring.slots
