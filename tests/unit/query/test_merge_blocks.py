# Many chart blocks become few without losing time, alarms or sums.
from dataclasses import replace

import pytest

from otel_llmprism.service.query.merge_blocks import merge_blocks
from otel_llmprism.service.query.sentinel_view import BlockView

FIRST = BlockView(0, "decode", 10, 0.02, 0.01, 0.012, 0.1, 0.01, decode_tokens=4.0, waiting=2.0)


def test_few_blocks_stay_as_they_are() -> None:
    assert merge_blocks([FIRST], 10) == [FIRST]


def test_neighbours_become_one_with_sums_and_means_over_steps() -> None:
    second = replace(FIRST, t_ns=1, steps=30, observed_s=0.04, decode_tokens=8.0, waiting=None, is_alarm=True)
    (merged,) = merge_blocks([FIRST, second], 1)
    assert (merged.t_ns, merged.steps, merged.is_alarm) == (0, 40, True)
    assert (merged.observed_s, merged.decode_tokens) == pytest.approx((0.035, 7.0))
    assert (merged.excess_s, merged.gap_s) == pytest.approx((0.2, 0.02))
    assert merged.waiting == 2.0
    assert merged.kv_tokens is None


def test_kinds_never_mix_and_times_stay_in_order() -> None:
    blocks = [replace(FIRST, t_ns=at, kind=kind) for at in range(1000) for kind in ("decode", "prefill")]
    merged = merge_blocks(blocks, 100)
    assert len(merged) == 100
    assert {block.kind for block in merged} == {"decode", "prefill"}
    assert [block.t_ns for block in merged] == sorted(block.t_ns for block in merged)
    assert sum(block.steps for block in merged) == 20_000


def test_one_alarm_is_not_lost_among_many_blocks() -> None:
    blocks = [replace(FIRST, t_ns=at, is_alarm=at == 517) for at in range(1000)]
    assert sum(block.is_alarm for block in merge_blocks(blocks, 10)) == 1


def test_what_was_never_expected_stays_unexpected() -> None:
    blocks = [replace(FIRST, t_ns=at, expected_s=None, upper_s=None) for at in range(10)]
    assert {block.expected_s for block in merge_blocks(blocks, 2)} == {None}
