# Which steps were abnormal: a step's times and the time that the injector added to it in, a label out.
# After the contract: abnormal from 15 % of what it would have taken; less, or unknown, is not scored.
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from otel_llmprism.testing.evaluation.recording import AddedTime
from otel_llmprism.testing.evaluation.replay import StepScores
from otel_llmprism.testing.faults.fault_ledger import FaultEntry

ABNORMAL_SHARE = 0.15
UNSCORED_FIRST = 3  # steps of an incident

Labels = npt.NDArray[np.int8]
Flags = npt.NDArray[np.bool_]


class Label(IntEnum):
    UNSCORED = -1
    NORMAL = 0
    ABNORMAL = 1


@dataclass(frozen=True, slots=True)
class Counted:
    """Steps by what they were and what was said of them."""

    hits: int = 0
    misses: int = 0
    false_flags: int = 0
    passed: int = 0

    def __add__(self, other: "Counted") -> "Counted":
        return Counted(
            self.hits + other.hits,
            self.misses + other.misses,
            self.false_flags + other.false_flags,
            self.passed + other.passed,
        )

    @property
    def normal(self) -> int:
        return self.false_flags + self.passed

    @property
    def abnormal(self) -> int:
        return self.hits + self.misses


def label_steps(
    steps: StepScores, added_ns: Mapping[int, int], faults: Iterable[FaultEntry], *, is_known: bool
) -> Labels:
    """Label each step; `is_known` False: the delay of these faults is not booked, so none is abnormal."""
    added = np.array([added_ns.get(step, 0) for step in steps.step.tolist()], dtype=np.float64)
    cycle = steps.cycle_ns.astype(np.float64)
    share = added / np.maximum(cycle - added, 1.0)
    labels = np.where(share >= ABNORMAL_SHARE, Label.ABNORMAL, Label.NORMAL).astype(np.int8)
    labels[(share > 0) & (share < ABNORMAL_SHARE)] = Label.UNSCORED
    ends = steps.ready_ns.astype(np.float64)
    starts = ends - cycle
    for fault in faults:
        overlaps = (ends > fault.start) & (starts < fault.end)
        if not is_known:
            labels[overlaps] = Label.UNSCORED
            continue
        labels[overlaps & (labels == Label.NORMAL)] = Label.UNSCORED
        labels[np.flatnonzero(overlaps)[:UNSCORED_FIRST]] = Label.UNSCORED
    return labels


def resolve_added(steps: StepScores, time: AddedTime) -> dict[int, int]:
    """Return the time added to each step; what is known by time belongs to the next result."""
    added = dict(time.by_step)
    places = np.searchsorted(steps.ready_ns, np.array([at_ns for at_ns, _ in time.timed], dtype=np.uint64))
    for place, (at_ns, spent_ns) in zip(places.tolist(), time.timed, strict=True):
        if place == 0 and at_ns < int(steps.ready_ns[0]) - int(steps.cycle_ns[0]):
            continue  # before the first of these steps began
        if place < len(steps.step):
            step = int(steps.step[place])
            added[step] = added.get(step, 0) + spent_ns
    return added


def count_flags(labels: Labels, flags: Flags) -> Counted:
    """Hold flags against labels."""
    abnormal, normal = labels == Label.ABNORMAL, labels == Label.NORMAL
    return Counted(
        int((abnormal & flags).sum()),
        int((abnormal & ~flags).sum()),
        int((normal & flags).sum()),
        int((normal & ~flags).sum()),
    )


def flag_by_oracle(steps: StepScores, added_ns: Mapping[int, int]) -> Flags:
    """Flag as one would who knows what each step had taken without the fault."""
    added = np.array([added_ns.get(step, 0) for step in steps.step.tolist()], dtype=np.float64)
    cycle = steps.cycle_ns.astype(np.float64)
    flags: Flags = cycle / np.maximum(cycle - added, 1.0) >= 1 + ABNORMAL_SHARE
    return flags
