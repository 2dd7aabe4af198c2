"""What can be checked of the CUDA way without a GPU: its mask, and its output in the forward."""

import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from pjepa.model import flex
from pjepa.model.attention import attention_plan, layout_of_segments
from tests.model import slow_attention as slow

MODES = ("clip_causal", "block_causal", "token_causal", "bidirectional")
takes = st.lists(st.lists(st.integers(1, 150), min_size=1, max_size=6), min_size=1, max_size=4)


@st.composite
def packed(draw):
    """A packed batch, whole or with some tokens left out, and its block ids."""
    layout = layout_of_segments(draw(takes))
    share = draw(st.sampled_from((0.0, 0.02, 0.3, 1.0)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    part = slow.subset(layout, torch.rand(len(layout.index), generator=generator) < share)
    return part, part.block(draw(st.sampled_from(MODES)), 40)


def listed(numbers, indices):
    """The tiles of a block mask as a dense bool matrix."""
    dense = torch.zeros(indices.shape[-2:], dtype=torch.bool)
    for row, (number, index) in enumerate(zip(numbers[0, 0], indices[0, 0], strict=True)):
        dense[row, index[:number].long()] = True
    return dense


@settings(max_examples=60, deadline=None)
@given(packed())
def test_mask_and_tiles_are_those_of_the_whole_mask(batch):
    layout, block = batch
    plan = attention_plan(layout, block)
    query, key = torch.arange(len(block))[:, None], torch.arange(len(block))
    visible = flex.visible_to(plan.first, plan.last)(0, 0, query, key)
    assert torch.equal(visible, slow.allowed_pairs(layout.take_lengths, block))
    tiles = plan.tiles
    size = tiles.seq_lengths[0]
    assert size >= max(2 * flex.TILE, len(block))
    assert size % flex.TILE == 0
    expected = create_block_mask(tiles.mask_mod, None, None, size, size, device="cpu")
    for kind in ("kv", "full_kv", "q", "full_q"):
        found, wanted = (
            listed(getattr(mask, f"{kind}_num_blocks"), getattr(mask, f"{kind}_indices"))
            for mask in (tiles, expected)
        )
        assert torch.equal(found, wanted)


def assert_obvious(segments, heads, width):
    layout = layout_of_segments(segments)
    tiles = attention_plan(layout, layout.segment).tiles
    qkv = torch.randn(len(layout.index), 3, heads, width).unbind(1)
    allowed = slow.allowed_pairs(layout.take_lengths, layout.segment)
    found = flex.flex_attend(*qkv, tiles)
    torch.testing.assert_close(found, slow.masked_attention(*qkv, allowed), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("width", [11, 22, 32])
def test_what_is_compiled_first_serves_batches_of_all_sizes(width, monkeypatch):
    graphs = []

    def counting(graph, inputs):
        graphs.append(graph)
        return graph

    torch.compiler.reset()
    compiled = torch.compile(flex_attention, dynamic=True, backend=counting)
    monkeypatch.setattr(flex, "compiled", lambda: compiled)
    assert_obvious([[300, 2]], 2, width)
    first = len(graphs)
    for segments in ([[3], [2]], [[45] * 20], [[70] * 10, [1]], [[40, 3, 100], [7], [1, 1, 60]]):
        assert_obvious(segments, 2, width)
    assert len(graphs) == first


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_the_compiled_kernel_gives_the_obvious_output():
    for segments in ([[300, 2]], [[3], [2]], [[45] * 20]):
        assert_obvious(segments, 2, 32)
