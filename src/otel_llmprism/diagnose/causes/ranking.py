# All families' candidates -> causes in order, the culprit first. A shortage of the machine explains what
# looks slow because of it; a specific cause goes before a general one; what nothing explains is a regression.
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from otel_llmprism.diagnose.causes.case import Candidate, Case
from otel_llmprism.diagnose.causes.cpu import find_cpu_contention
from otel_llmprism.diagnose.causes.data import find_data_stall
from otel_llmprism.diagnose.causes.frontend import find_frontend_delay
from otel_llmprism.diagnose.causes.gpu import find_gpu_causes
from otel_llmprism.diagnose.causes.load import find_load
from otel_llmprism.diagnose.causes.memory import find_memory_pressure
from otel_llmprism.diagnose.causes.ranks import find_rank_causes
from otel_llmprism.diagnose.causes.regression import find_regression
from otel_llmprism.diagnose.causes.scheduler import find_scheduler_delay
from otel_llmprism.diagnose.causes.throttle import find_throttle
from otel_llmprism.diagnose.kinds import RESOURCE_KINDS, Domain, FindingKind

# What a cause must explain to be named: less is a circumstance.
MIN_EXPLAINED = 0.3
Family = Callable[[Case], Iterator[Candidate]]
_MACHINE: tuple[Family, ...] = (find_throttle, find_memory_pressure, find_cpu_contention, find_gpu_causes)
_FAMILIES: dict[Domain, tuple[Family, ...]] = {
    Domain.STEPS: (*_MACHINE, find_rank_causes, find_scheduler_delay, find_data_stall),
    Domain.FRONT_END: (*_MACHINE, find_frontend_delay),
    Domain.QUEUE: (find_load,),
    Domain.SILENCE: (),
}
# Each is also seen as the second: a throttled thread waits, reclaim takes processors.
_MORE_SPECIFIC = {FindingKind.CPU_THROTTLE, FindingKind.MEMORY_PRESSURE}


def rank_causes(case: Case) -> list[Candidate]:
    """Return the causes that explain enough, best first; never empty for slow steps."""
    found = [one for family in _FAMILIES[case.domain] for one in family(case)]
    found = _discount(found)
    named = sorted((one for one in found if one.explained >= MIN_EXPLAINED), key=_order, reverse=True)
    weak = sorted((one for one in found if one.explained < MIN_EXPLAINED), key=_order, reverse=True)
    if case.domain is Domain.STEPS:
        return [*named, *find_regression(case, found), *weak]
    return [*named, *weak] if named else []


def _discount(found: Sequence[Candidate]) -> list[Candidate]:
    """Take from general causes and from structure what a more specific cause, or the machine, explains."""
    specific = _explain(one for one in found if one.kind in _MORE_SPECIFIC)
    general = [
        replace(one, explained=one.explained * (1 - specific))
        if one.kind is FindingKind.CPU_CONTENTION
        else one
        for one in found
    ]
    machine = _explain(one for one in general if one.kind in RESOURCE_KINDS)
    return [
        one if one.kind in RESOURCE_KINDS else replace(one, explained=one.explained * (1 - machine))
        for one in general
    ]


def _explain(candidates: Iterator[Candidate]) -> float:
    best = max((one.explained for one in candidates), default=0.0)
    return best if best >= MIN_EXPLAINED else 0.0


def _order(one: Candidate) -> tuple[bool, float]:
    return one.kind in _MORE_SPECIFIC, one.explained
