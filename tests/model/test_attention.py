import importlib.util
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pjepa.model.attention import attend, attention_plan
from pjepa.model.layout import layout_of_segments

_spec = importlib.util.spec_from_file_location(
    "slow", Path(__file__).with_name("slow_attention.py")
)
slow = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(slow)

MODES = ("clip_causal", "block_causal", "token_causal", "bidirectional")
takes = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(takes, st.sampled_from(MODES), st.integers(1, 12), st.data())
def test_equals_the_obvious_masked_version(segments, mode, chunk, data):
    layout = layout_of_segments(segments)
    count = len(layout.index)
    keep = torch.tensor(data.draw(st.lists(st.booleans(), min_size=count, max_size=count)))
    for part in (layout, layout.subset(keep)):
        generator = torch.Generator().manual_seed(count)
        q, k, v = torch.randn(3, len(part.index), 2, 8, generator=generator)
        block = part.block(mode, 4)
        fast = attend(q, k, v, attention_plan(part, block, chunk))
        first = 0
        for length in part.take_lengths:
            span = slice(first, first + length)
            expected = slow.masked_attention(q[span], k[span], v[span], block[span])
            torch.testing.assert_close(fast[span], expected, atol=1e-5, rtol=1e-5)
            first += length


def test_memory_of_the_plan_is_linear_in_the_take():
    def cells(segments):
        layout = layout_of_segments([[16] * segments])
        plan = attention_plan(layout, layout.block("clip_causal", 1))
        return max(c.mask.numel() / (c.stop - c.first) for c in plan if c.mask is not None)

    assert cells(400) <= cells(40)


@pytest.mark.parametrize("mode", MODES)
def test_a_take_without_context_tokens_is_skipped(mode):
    layout = layout_of_segments([[3], [2, 2]])
    keep = torch.tensor([False] * 3 + [True, False, True, True])
    part = layout.subset(keep)
    assert part.take_lengths == (0, 3)
    q = torch.randn(3, 1, 4)
    assert attend(q, q, q, attention_plan(part, part.block(mode, 2))).isfinite().all()
