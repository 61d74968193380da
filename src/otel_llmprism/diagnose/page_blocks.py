# One engine's last minutes by second and kind, as plain JSON values: what a page draws.
import math
from operator import itemgetter

import numpy as np

from otel_llmprism.diagnose.facts.bins import BIN_NS
from otel_llmprism.diagnose.facts.engine import EngineFacts
from otel_llmprism.diagnose.settings import S_NS
from otel_llmprism.native.ring_codes import StepKind

MAX_BLOCKS = 230  # seconds that the ring holds whole
_KINDS = (StepKind.PREFILL, StepKind.DECODE, StepKind.MIXED, StepKind.TRAIN)
_SUMS = (
    "steps",
    "span_s",
    "observed_s",
    "expected_s",
    "gap_s",
    "prefill_tokens",
    "decode_tokens",
    "kv_tokens",
    "waiting",
    "running",
)


def describe_blocks(facts: EngineFacts, seconds: int = MAX_BLOCKS) -> list[dict[str, object]]:
    """Return blocks oldest first; seconds without steps have none."""
    end_ns = facts.newest_ns // S_NS * S_NS
    blocks = []
    for kind in _KINDS:
        for at_ns, sums in _sum_seconds(facts, kind, end_ns, min(seconds, MAX_BLOCKS)):
            blocks.append((at_ns, kind, _describe_block(facts, kind, at_ns, sums)))
    return [block for _, _, block in sorted(blocks, key=itemgetter(0, 1))]


def _sum_seconds(
    facts: EngineFacts, kind: StepKind, end_ns: int, seconds: int
) -> list[tuple[int, dict[str, float]]]:
    prefix = f"kind/{int(kind)}/"
    if f"{prefix}steps" not in facts.bins.list_names(prefix):
        return []
    bins = facts.bins.list_bins(end_ns - seconds * S_NS, end_ns)
    starts, own = np.unique(bins * BIN_NS // S_NS, return_inverse=True)
    columns = [
        np.bincount(own, weights=facts.bins.read(prefix + name, bins), minlength=len(starts))
        for name in _SUMS
    ]
    return [
        (int(start) * S_NS, dict(zip(_SUMS, values, strict=True)))
        for start, *values in zip(starts.tolist(), *(column.tolist() for column in columns), strict=True)
        if values[0]
    ]


def _describe_block(
    facts: EngineFacts, kind: StepKind, at_ns: int, sums: dict[str, float]
) -> dict[str, object]:
    steps, span_s, expected_s = sums["steps"], sums["span_s"], sums["expected_s"]
    upper = facts.charts.read_upper(int(kind), at_ns)
    has_upper = expected_s > 0 and math.isfinite(upper)
    return {
        "t_ns": at_ns,
        "kind": kind.name.lower(),
        "steps": int(steps),
        "observed_s": sums["observed_s"] / steps,
        "expected_s": expected_s / steps if expected_s > 0 else None,
        "upper_s": expected_s / steps * math.exp(min(upper, 50.0)) if has_upper else None,
        "excess_s": sums["observed_s"] - expected_s if expected_s > 0 else None,
        "gap_s": sums["gap_s"],
        "prefill_tokens": int(sums["prefill_tokens"]),
        "decode_tokens": int(sums["decode_tokens"]),
        "kv_tokens": int(sums["kv_tokens"] / steps),
        "waiting": sums["waiting"] / span_s if span_s > 0 else 0.0,
        "running": sums["running"] / span_s if span_s > 0 else 0.0,
        "is_alarm": facts.charts.has_alarm_at(int(kind), at_ns),
    }
