# What goes out: iterations with their kind and how sure that is, and in words why.
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from otel_llmprism.model.steps import F64, U8, Table
from otel_llmprism.reconstruct.iterations.activity import I64


class Evidence(StrEnum):
    ANCHOR = "anchor"  # a range or call that stands once in each iteration
    PERIOD = "period"  # activities that repeat, with a pause between
    NONE = "none"


@dataclass(frozen=True, slots=True)
class IterationTable(Table):
    """Iterations in order, none inside another; `kind` holds codes of StepKind, 0 where nothing tells."""

    begin_ns: I64
    end_ns: I64
    kind: U8
    confidence: F64  # that this is one iteration; 0 to 1


@dataclass(frozen=True, slots=True)
class Recognition:
    iterations: IterationTable
    evidence: Evidence
    why: str  # one sentence
    anchor: str = ""  # the name that was chosen, its numbers as they came first

    def __bool__(self) -> bool:
        return len(self.iterations) > 0


MAX_IN_DOUBT = 0.4


def doubt(found: Recognition) -> Recognition:
    """Return the same, less sure: what repeats may be the layers of one iteration."""
    table = found.iterations
    table = IterationTable(
        table.begin_ns, table.end_ns, table.kind, np.minimum(table.confidence, MAX_IN_DOUBT)
    )
    why = f"{found.why}; nothing comes back inside them, so they may be layers of one iteration"
    return Recognition(table, found.evidence, why, found.anchor)


def find_none(why: str) -> Recognition:
    """Return the answer that there are no iterations to be seen."""
    empty = IterationTable(
        np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint8), np.empty(0, np.float64)
    )
    return Recognition(empty, Evidence.NONE, why)
