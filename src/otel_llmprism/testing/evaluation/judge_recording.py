# One recording judged: each episode by a sentinel that learned the warm-up, steps against the injector's
# book, findings against the fault's kind; what opens while nothing is wrong is false. Runs no engine.
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from otel_llmprism.testing.evaluation.fault_kinds import KINDS
from otel_llmprism.testing.evaluation.finding_truth import (
    Outcome,
    count_false,
    judge_episode,
    list_incidents,
    name_finding,
)
from otel_llmprism.testing.evaluation.recording import AddedTime, Recording, TimedBody
from otel_llmprism.testing.evaluation.replay import (
    ReplayState,
    Verdict,
    cut_bodies,
    feed_bodies,
    pass_time,
)
from otel_llmprism.testing.evaluation.sentinel_core import build_replay
from otel_llmprism.testing.evaluation.step_truth import (
    Counted,
    count_flags,
    flag_by_oracle,
    label_steps,
    resolve_added,
)
from otel_llmprism.testing.faults.fault_ledger import FaultEntry

_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class FlagScore:
    """Step flags of one episode."""

    kind: str
    intensity: float
    counted: Counted
    oracle: Counted
    lag: float  # steps from onset to the first flag; infinite: none


@dataclass(slots=True)
class RecordingScore:
    """What one recording gave; steps are counted only where the injector books its delays."""

    name: str
    outcomes: list[Outcome] = field(default_factory=list)
    flags: list[FlagScore] = field(default_factory=list)
    false_findings: list[str] = field(default_factory=list)
    quiet_s: float = 0.0  # data time in which nothing was wrong
    quiet_steps: int = 0


@dataclass(frozen=True, slots=True)
class Stretch:
    """One episode with the quiet time before it; CLOCK_MONOTONIC. No fault: `none` is judged."""

    entry: FaultEntry
    begin_ns: int
    end_ns: int
    is_faulty: bool


def judge_recording(recording: Recording, seed: int) -> RecordingScore:
    """Replay a recording and score it."""
    facts, bodies = recording.read_facts(), recording.list_bodies()
    score = RecordingScore(facts["plan"]["name"])
    warmup_ns = recording.origin_ns + int(facts["plan"]["sizes"]["warmup_s"] * _NS)
    state = build_replay(seed)
    learned = feed_bodies(state, cut_bodies(bodies, 0, warmup_ns))
    # An episode comes minutes later in the data: every copy would find a fit due, and begin new charts.
    state.trainer.is_frozen = True
    _count_quiet(score, learned, (warmup_ns - recording.origin_ns) / _NS)
    added = recording.read_added()
    for stretch in list_stretches(recording, facts["plan"]):
        _judge_stretch(score, state.copy(), bodies, stretch, added)
    return score


def list_stretches(recording: Recording, plan: dict[str, object]) -> list[Stretch]:
    """Return the episodes, each with half the rest before and after it."""
    sizes, episodes = plan["sizes"], plan["episodes"]
    assert isinstance(sizes, dict) and isinstance(episodes, list)  # noqa: PT018
    half_ns = int(sizes["rest_s"] / 2 * _NS)
    faults = {entry.id: entry for entry in recording.list_faults()}
    found = []
    for one in episodes:
        begin_ns = recording.origin_ns + int(one["begin_s"] * _NS)
        end_ns = recording.origin_ns + int(one["end_s"] * _NS)
        nothing = FaultEntry("none", "", begin_ns, end_ns, one["intensity"], one["id"], "none")
        entry = faults.get(one["id"], nothing)
        if entry.id in faults or one["kind"] == "none":
            stretch = (entry.start - half_ns, entry.end + half_ns)
            found.append(Stretch(entry, *stretch, is_faulty=entry.id in faults))
    return found


def _judge_stretch(
    score: RecordingScore,
    state: ReplayState,
    bodies: Sequence[TimedBody],
    stretch: Stretch,
    added: AddedTime,
) -> None:
    own = cut_bodies(bodies, stretch.begin_ns, stretch.end_ns)
    if not own:
        return
    verdict = feed_bodies(state, own)
    verdict.findings += pass_time(state).findings
    to_real_ns = own[0].realtime_ns - own[0].monotonic_ns
    begin_ns, end_ns = stretch.entry.start + to_real_ns, stretch.entry.end + to_real_ns
    if not stretch.is_faulty:
        _count_quiet(score, verdict, (stretch.end_ns - stretch.begin_ns) / _NS)
        return
    kind = KINDS[stretch.entry.kind]
    outcome = judge_episode(kind, stretch.entry.intensity, begin_ns, end_ns, verdict.findings)
    score.outcomes.append(outcome)
    before = list_incidents(verdict.findings, 0, begin_ns - 1)
    score.false_findings += map(name_finding, before)
    score.quiet_s += (stretch.entry.start - stretch.begin_ns) / _NS
    if kind.has_known_delay:
        _count_steps(score, verdict, stretch.entry, added)


def _count_steps(score: RecordingScore, verdict: Verdict, entry: FaultEntry, added: AddedTime) -> None:
    steps = verdict.join_steps()
    by_step = resolve_added(steps, added)
    labels = label_steps(steps, by_step, [entry], is_known=True)
    flags = steps.is_flagged > 0
    struck = (steps.ready_ns >= entry.start) & (steps.ready_ns < entry.end)
    raised = flags[struck].nonzero()[0]
    score.flags.append(
        FlagScore(
            entry.kind,
            entry.intensity,
            count_flags(labels, flags),
            count_flags(labels, flag_by_oracle(steps, by_step)),
            float(raised[0]) if len(raised) else math.inf,
        )
    )


def _count_quiet(score: RecordingScore, verdict: Verdict, seconds: float) -> None:
    score.false_findings += map(name_finding, count_false(verdict.findings))
    score.quiet_s += seconds
    score.quiet_steps += sum(map(len, verdict.tables))
