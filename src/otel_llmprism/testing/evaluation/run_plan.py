# What one recording is: an engine's defaults, its load, and when which fault strikes it; drawn from seeds
# alone, so that equal arguments give equal plans. Runs nothing.
import random
from collections.abc import Sequence
from dataclasses import dataclass

from otel_llmprism.testing.evaluation.fault_kinds import KINDS, FaultKind
from otel_llmprism.testing.evaluation.seeds import Purpose, Split, derive_seed
from otel_llmprism.testing.mini_engine.fault_schedule import Entry, Manner, Place

_LOADED = (Place.LOAD, Place.KV_CACHE)  # a load of its own is the fault, or part of it
LOAD_FACTORS = (1.0, 1.25, 1.5)  # beyond what was trained on


@dataclass(frozen=True, slots=True)
class PlanSizes:
    """Seconds, and how many episodes of each intensity."""

    warmup_s: float = 120.0
    fault_s: float = 12.0
    rest_s: float = 12.0
    repeats: int = 30


@dataclass(frozen=True, slots=True)
class Episode:
    """One incident; seconds since the recording's origin."""

    id: str
    kind: str
    begin_s: float
    end_s: float
    intensity: float
    manner: Manner


@dataclass(frozen=True, slots=True)
class RunPlan:
    kind: FaultKind
    split: Split
    number: int
    sizes: PlanSizes
    words: dict[str, float]  # the engine's flags
    seconds: float
    episodes: tuple[Episode, ...] = ()
    loads: tuple[Entry, ...] = ()  # shifts of the load that are no fault
    name: str = ""
    engine_id: str = ""  # empty: each run is another engine

    def list_entries(self) -> tuple[Entry, ...]:
        """Return what the engine's own schedule holds."""
        own = []
        for one in self.episodes:
            kind = KINDS[one.kind]
            if kind.place is not None:
                rank = int(kind.target) if kind.place is Place.RANK else 0
                own.append(Entry(one.id, kind.place, one.begin_s, one.end_s, one.intensity, rank, one.manner))
        return (*self.loads, *own)


def build_plan(kind: FaultKind, split: Split, number: int, sizes: PlanSizes) -> RunPlan:
    """Draw a plan of one kind: warm-up, then fault and rest by turns, intensities mixed."""
    wanted = [(kind, intensity) for intensity in kind.intensities for _ in range(sizes.repeats)]
    return _place_episodes(kind, wanted, split, number, sizes)


def build_mixed_plan(kinds: Sequence[FaultKind], split: Split, number: int, sizes: PlanSizes) -> RunPlan:
    """Draw a plan in which one engine suffers several kinds, each at its highest intensity."""
    ranks = max(kind.ranks for kind in kinds)
    base = FaultKind("mixed", "several", "several", (), ranks=ranks)
    wanted = [(kind, max(kind.intensities)) for kind in kinds for _ in range(sizes.repeats)]
    return _place_episodes(base, wanted, split, number, sizes)


def _place_episodes(
    kind: FaultKind,
    wanted: list[tuple[FaultKind, float]],
    split: Split,
    number: int,
    sizes: PlanSizes,
) -> RunPlan:
    chance = _open(Purpose.SCHEDULE, split, kind.name, number)
    chance.shuffle(wanted)
    episodes, loads, at_s = [], [], sizes.warmup_s
    for place, (own, intensity) in enumerate(wanted):
        begin_s = at_s + sizes.rest_s / 2 + chance.uniform(0, 2)
        end_s = begin_s + sizes.fault_s
        manner = chance.choice(tuple(Manner))
        episodes.append(Episode(f"{own.name}-{number}-{place}", own.name, begin_s, end_s, intensity, manner))
        next_s = end_s + sizes.rest_s / 2
        factor = chance.choice(LOAD_FACTORS)
        if factor > 1 and own.place not in _LOADED:
            loads.append(Entry(f"load-{place}", Place.LOAD, at_s, next_s, factor))
        at_s = next_s
    words = _draw_words(kind, split, number)
    name = f"{kind.name}-{split}-{number}"
    return RunPlan(kind, split, number, sizes, words, at_s + 2, tuple(episodes), tuple(loads), name)


def _draw_words(kind: FaultKind, split: Split, number: int) -> dict[str, float]:
    """Draw the engine's shape and load."""
    defaults = _open(Purpose.DEFAULTS, split, kind.name, number)
    drawn: dict[str, float] = {
        "ranks": kind.ranks,
        "layers": defaults.choice((3, 4, 5)),
        "width": defaults.choice((128, 192, 256)),
        "rate": defaults.choice((6, 8, 10)),
        "prompt": defaults.choice((48, 64, 96)),
        "output": defaults.choice((32, 48)),
        "seed": derive_seed(Purpose.ARRIVALS, split, kind.name, number) % (1 << 31),
    }
    return drawn | dict(kind.load)


def _open(purpose: Purpose, split: Split, kind: str, number: int) -> random.Random:
    return random.Random(derive_seed(purpose, split, kind, number))  # noqa: S311  repeatable on purpose
