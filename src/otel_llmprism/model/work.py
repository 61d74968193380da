# The work in steps as named numbers, what was expected of it, and what a step then showed. Pure columns: what
# the numbers mean to a machine is baseline's.
from dataclasses import dataclass

import numpy as np

from otel_llmprism.model.steps import F64, U8, U64, Table

# The features every engine tells; further ones may follow under names of their own.
PREFILL_TOKENS = "prefill_tokens"
DECODE_TOKENS = "decode_tokens"
KV_TOKENS = "kv_tokens"
REQUESTS = "requests"
GRAPH_MODE = "graph_mode"
STANDARD_FEATURES = (PREFILL_TOKENS, DECODE_TOKENS, KV_TOKENS, REQUESTS, GRAPH_MODE)


@dataclass(frozen=True, slots=True)
class WorkTable(Table):
    """The work in steps: `values[row, place of the name]`, finite and >= 0, NaN where it was not told.

    `kind` holds the codes of native.ring_codes.StepKind (0: unknown).
    """

    kind: U8
    names: tuple[str, ...]
    values: F64  # rows x len(names)

    def read_feature(self, name: str) -> F64:
        """Return one feature's column, NaN in every row when nobody tells it."""
        if name not in self.names:
            return np.full(len(self.kind), np.nan)
        column: F64 = self.values[:, self.names.index(name)]
        return column


@dataclass(frozen=True, slots=True)
class ExpectationTable(Table):
    """What steps should take; rows as those of the WorkTable it was made from."""

    expected_ns: F64  # NaN: no model has earned an answer for this kind yet
    spread: F64  # standard deviation of ln(cycle / expected) to reckon with; wider outside the trained range
    is_known: U8  # 0: work like this was never seen


@dataclass(frozen=True, slots=True)
class ScoredTable(Table):
    """Steps with what was expected of them, in step order; charted kinds only (no idle, no dummy steps).

    `residual` is ln(cycle / expected), NaN where nothing was expected. `is_flagged`: slower than its work
    explains, by the step's own limit.
    """

    step: U64
    time_ns: U64  # output-ready, CLOCK_MONOTONIC of the engine's node
    kind: U8
    cycle_ns: U64
    expected_ns: F64
    residual: F64
    spread: F64
    is_known: U8
    is_flagged: U8
