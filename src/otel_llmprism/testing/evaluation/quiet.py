# Days of an engine with which nothing is wrong, for counting false findings: many real minutes under drawn
# loads, with restarts, shifts of the load and changes of the model, one engine id throughout; replayed as
# one stream.
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from otel_llmprism.testing.evaluation.fault_kinds import KINDS
from otel_llmprism.testing.evaluation.finding_truth import count_false, name_finding
from otel_llmprism.testing.evaluation.intervals import bound_rate
from otel_llmprism.testing.evaluation.recording import Recording
from otel_llmprism.testing.evaluation.replay import feed_bodies
from otel_llmprism.testing.evaluation.run_plan import PlanSizes, RunPlan, build_plan
from otel_llmprism.testing.evaluation.seeds import Purpose, Split, derive_seed
from otel_llmprism.testing.evaluation.sentinel_core import build_replay
from otel_llmprism.testing.mini_engine.fault_schedule import Entry, Place

LIFE_S = 600.0  # of one start of the engine
_MODEL_EVERY = 5  # lives, then another model is loaded: the same engine id, other work a step
_DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class QuietScore:
    steps: int
    engine_days: float
    false_findings: tuple[str, ...]

    @property
    def bound_per_day(self) -> float:
        """The 95 % upper bound of false findings an engine-day."""
        return bound_rate(len(self.false_findings), self.engine_days)


def plan_quiet(split: Split, lives: int, life_s: float = LIFE_S) -> Iterator[RunPlan]:
    """Draw the lives of one engine: small fast steps, so that many are made in little time."""
    sizes = PlanSizes(warmup_s=life_s, repeats=1)
    words: dict[str, float] = {}
    for number in range(lives):
        plan = build_plan(KINDS["none"], split, number, sizes)
        if number % _MODEL_EVERY == 0:
            words = {**plan.words, "width": 64, "layers": 1 + (number // _MODEL_EVERY) % 3, "rate": 20}
        own = {**words, "seed": plan.words["seed"]}
        loads = tuple(_draw_shifts(split, number, life_s))
        name = f"quiet-{split}-{number}"
        yield replace(plan, words=own, episodes=(), loads=loads, seconds=life_s, name=name, engine_id="quiet")


def judge_quiet(recordings: Iterable[Recording], seed: int) -> QuietScore:
    """Replay the lives one after the other through one sentinel."""
    state = build_replay(seed)
    steps, seconds, names = 0, 0.0, list[str]()
    for recording in recordings:
        bodies = recording.list_bodies()
        if not bodies:
            continue
        verdict = feed_bodies(state, bodies)
        steps += sum(map(len, verdict.tables))
        seconds += (bodies[-1].monotonic_ns - bodies[0].monotonic_ns) / 1e9
        names += map(name_finding, count_false(verdict.findings))
    return QuietScore(steps, seconds / _DAY_S, tuple(names))


def tell_quiet(score: QuietScore) -> str:
    """Return the score as a sentence and a list."""
    text = (
        f"{len(score.false_findings)} findings in {score.steps} steps and {score.engine_days:.3f} "
        f"engine-days; 95 % upper bound {score.bound_per_day:.1f} an engine-day."
    )
    return text + "".join(f"\n- {name}" for name in score.false_findings)


def _draw_shifts(split: Split, number: int, life_s: float) -> Iterator[Entry]:
    chance = random.Random(derive_seed(Purpose.SCHEDULE, split, "quiet", number))  # noqa: S311
    at_s = chance.uniform(20, 60)
    while at_s < life_s - 30:
        until_s = at_s + chance.uniform(20, 90)
        yield Entry(
            f"shift-{at_s:.0f}", Place.LOAD, at_s, min(until_s, life_s), chance.choice((1.2, 1.5, 2.0))
        )
        at_s = until_s + chance.uniform(10, 90)
