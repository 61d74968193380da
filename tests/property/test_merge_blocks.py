# Whatever blocks come, merging keeps sums, alarms, kinds and order, and the bound.
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_llmprism.service.query.merge_blocks import merge_blocks
from otel_llmprism.service.query.sentinel_view import BlockView

_SECONDS = st.floats(0, 1e3)
_BLOCKS = st.lists(
    st.builds(
        BlockView,
        t_ns=st.integers(0, 10**13),
        kind=st.sampled_from(["decode", "prefill", "mixed"]),
        steps=st.integers(0, 10_000),
        observed_s=_SECONDS,
        expected_s=st.none() | _SECONDS,
        upper_s=st.none() | _SECONDS,
        excess_s=st.floats(-1e3, 1e3),
        gap_s=_SECONDS,
        waiting=st.none() | _SECONDS,
        is_alarm=st.booleans(),
    ),
    max_size=60,
)


@given(blocks=_BLOCKS, most=st.integers(3, 70))
def test_merging_keeps_what_a_page_adds_up(blocks: list[BlockView], most: int) -> None:
    merged = merge_blocks(blocks, most)
    assert len(merged) <= max(most, 3)
    assert sum(block.steps for block in merged) == sum(block.steps for block in blocks)
    assert sum(block.excess_s for block in merged) == pytest.approx(
        sum(block.excess_s for block in blocks), abs=1e-6
    )
    assert any(block.is_alarm for block in merged) == any(block.is_alarm for block in blocks)
    assert set(Counter(block.kind for block in merged)) == {block.kind for block in blocks}


@given(blocks=_BLOCKS.filter(bool), most=st.integers(3, 70))
def test_means_stay_within_what_was_merged(blocks: list[BlockView], most: int) -> None:
    least, largest = min(one.observed_s for one in blocks), max(one.observed_s for one in blocks)
    for block in merge_blocks(blocks, most):
        assert least - 1e-9 <= block.observed_s <= largest + 1e-6
