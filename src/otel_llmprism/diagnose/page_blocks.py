# One engine's last minutes by second and kind, as plain JSON values: what a page draws.
import math

from otel_llmprism.diagnose.facts.engine import EngineFacts
from otel_llmprism.diagnose.settings import S_NS
from otel_llmprism.native.ring_codes import StepKind

MAX_BLOCKS = 240


def describe_blocks(facts: EngineFacts, seconds: int = MAX_BLOCKS) -> list[dict[str, object]]:
    """Return blocks oldest first; seconds without steps have none."""
    end_ns = facts.newest_ns // S_NS * S_NS
    blocks = []
    for code in (StepKind.PREFILL, StepKind.DECODE, StepKind.MIXED, StepKind.TRAIN):
        if f"kind/{int(code)}/steps" in facts.bins.list_names(f"kind/{int(code)}/"):
            for at in range(end_ns - min(seconds, MAX_BLOCKS) * S_NS, end_ns, S_NS):
                block = _describe_block(facts, code, at)
                if block is not None:
                    blocks.append(block)
    return sorted(blocks, key=lambda block: (block["t_ns"], block["kind"]))


def _describe_block(facts: EngineFacts, code: StepKind, at_ns: int) -> dict[str, object] | None:
    def add(name: str) -> float:
        return facts.bins.sum_between(f"kind/{int(code)}/{name}", at_ns, at_ns + S_NS)

    steps = add("steps")
    if not steps:
        return None
    observed_s, expected_s, span_s = add("observed_s"), add("expected_s"), add("span_s")
    upper = facts.charts.read_upper(int(code), at_ns)
    return {
        "t_ns": at_ns,
        "kind": code.name.lower(),
        "steps": int(steps),
        "observed_s": observed_s / steps,
        "expected_s": expected_s / steps if expected_s > 0 else None,
        "upper_s": expected_s / steps * math.exp(upper) if expected_s > 0 and math.isfinite(upper) else None,
        "excess_s": observed_s - expected_s if expected_s > 0 else None,
        "gap_s": add("gap_s"),
        "prefill_tokens": int(add("prefill_tokens")),
        "decode_tokens": int(add("decode_tokens")),
        "kv_tokens": int(add("kv_tokens") / steps),
        "waiting": add("waiting") / span_s if span_s > 0 else 0.0,
        "running": add("running") / span_s if span_s > 0 else 0.0,
        "is_alarm": facts.charts.has_alarm_at(int(code), at_ns),
    }
