# Which recordings an evaluation is made of, and all of them made and judged, one after the other: nothing
# else may run beside an engine that is measured.
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from otel_llmprism.testing.evaluation.fault_kinds import KINDS
from otel_llmprism.testing.evaluation.judge_recording import RecordingScore, judge_recording
from otel_llmprism.testing.evaluation.recording import Recording
from otel_llmprism.testing.evaluation.run_plan import PlanSizes, RunPlan, build_mixed_plan, build_plan
from otel_llmprism.testing.evaluation.seeds import Purpose, Split, derive_seed
from otel_llmprism.testing.faults.fault import UnavailableError
from otel_llmprism.testing.programs import ProgramError

SHORT_KINDS = ("none", "operator", "scheduler", "slow_rank")
SHORT_VLLM_KINDS = ("none", "operator", "cpu_quota")
# Long enough for a first model, and for charts that have limits by it.
SHORT = PlanSizes(warmup_s=105.0, fault_s=6.0, rest_s=6.0, repeats=1)
FULL = PlanSizes(warmup_s=180.0, fault_s=10.0, rest_s=10.0, repeats=30)
_RUNS = 30  # of clear intensity, of each kind, in the full one
_EPISODES = 40  # of one recording: then an engine with other defaults

Record = Callable[[RunPlan], Recording]


@dataclass(slots=True)
class SuiteResult:
    scores: list[RecordingScore] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # what this machine cannot do, or what broke
    machines: list[dict[str, object]] = field(default_factory=list)


def plan_short(split: Split, kinds: Sequence[str] = SHORT_KINDS) -> list[RunPlan]:
    """One engine that suffers a few kinds, each once."""
    return [build_mixed_plan([KINDS[name] for name in kinds], split, 0, SHORT)]


def plan_full(split: Split, kinds: Sequence[str], runs: int = _RUNS) -> Iterator[RunPlan]:
    """Every kind: `runs` of each intensity where all four are asked for, else `runs` in all."""
    for name in kinds:
        kind = KINDS[name]
        share = 1 if len(kind.intensities) > 2 else len(kind.intensities)
        left = -(-runs // share)
        number = 0
        while left > 0:
            repeats = min(left, max(1, _EPISODES // len(kind.intensities)))
            yield build_plan(kind, split, number, replace(FULL, repeats=repeats))
            left, number = left - repeats, number + 1


def run_suite(plans: Sequence[RunPlan], record: Record) -> SuiteResult:
    """Record and judge all; what cannot be done is told and costs only itself."""
    result = SuiteResult()
    for number, plan in enumerate(plans, 1):
        sys.stderr.write(f"[{number}/{len(plans)}] {plan.name}: {len(plan.episodes)} episodes, ")
        sys.stderr.write(f"{plan.seconds:.0f} s\n")
        try:
            recording = record(plan)
            seed = derive_seed(Purpose.ANALYSIS, plan.split, plan.name, plan.number)
            result.scores.append(judge_recording(recording, seed))
            result.machines.append(recording.read_facts()["machine"])
        except (UnavailableError, ProgramError, OSError) as error:
            result.missing.append(f"{plan.name}: {' '.join(str(error).split())[:300]}")
    return result


def record_in(cache: Path, make: Callable[[RunPlan, Path], Recording]) -> Record:
    """Return what makes recordings in a folder."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    return lambda plan: make(plan, cache)
