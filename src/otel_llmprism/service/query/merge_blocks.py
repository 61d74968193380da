# Chart blocks -> fewer of them, for ranges with more than a page can draw: neighbours of a kind become one.
# Sums stay sums, means stay means over steps, and an alarm in any of them is an alarm of the whole.
from collections import defaultdict
from collections.abc import Iterable, Sequence

from otel_llmprism.service.query.sentinel_view import BlockView


def merge_blocks(blocks: Sequence[BlockView], most: int) -> list[BlockView]:
    """Return at most about `most` blocks, in order of time; the same ones when they are few enough."""
    if len(blocks) <= most or most < 1:
        return list(blocks)
    begin_ns = min(block.t_ns for block in blocks)
    span_ns = max(block.t_ns for block in blocks) - begin_ns + 1
    kinds = len({block.kind for block in blocks})
    width_ns = -(-span_ns // max(1, most // kinds))
    together: dict[tuple[int, str], list[BlockView]] = defaultdict(list)
    for block in blocks:
        together[(block.t_ns - begin_ns) // width_ns, block.kind].append(block)
    merged = [_merge(group) for group in together.values()]
    return sorted(merged, key=lambda block: (block.t_ns, block.kind))


def _merge(group: Sequence[BlockView]) -> BlockView:
    first = group[0]
    if len(group) == 1:
        return first
    weights = [max(1, block.steps) for block in group]

    def mean(values: Iterable[float | None]) -> float | None:
        told = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None]
        return (
            sum(value * weight for value, weight in told) / sum(weight for _, weight in told)
            if told
            else None
        )

    return BlockView(
        t_ns=min(block.t_ns for block in group),
        kind=first.kind,
        steps=sum(block.steps for block in group),
        observed_s=mean(block.observed_s for block in group) or 0.0,
        expected_s=mean(block.expected_s for block in group),
        upper_s=mean(block.upper_s for block in group),
        excess_s=sum(block.excess_s for block in group),
        gap_s=sum(block.gap_s for block in group),
        prefill_tokens=mean(block.prefill_tokens for block in group),
        decode_tokens=mean(block.decode_tokens for block in group),
        kv_tokens=mean(block.kv_tokens for block in group),
        waiting=mean(block.waiting for block in group),
        running=mean(block.running for block in group),
        is_alarm=any(block.is_alarm for block in group),
    )
