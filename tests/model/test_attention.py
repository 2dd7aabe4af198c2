import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pjepa.model import cpu
from pjepa.model.attention import AttentionPlan, attention_plan, layout_of_segments, public_attend
from tests.model import slow_attention as slow

MODES = ("clip_causal", "block_causal", "token_causal", "bidirectional")
LONG = [[1] * 30, [2300, 1, 40], [45, 12, 1, 1030, 33, 60, 45, 20, 1, 1, 70, 260, 45] * 2, [300, 7]]
takes = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=4)
some = st.just(None) | st.integers(0, 99)


def chosen(count, seed):
    """Which tokens: all, or some at random (bool [N])."""
    if seed is None:
        return torch.ones(count, dtype=torch.bool)
    return torch.rand(count, generator=torch.Generator().manual_seed(seed)) < 0.6


@st.composite
def packed(draw):
    """A packed batch, whole or with some tokens left out, and its block ids."""
    layout = layout_of_segments(draw(takes))
    part = slow.subset(layout, chosen(len(layout.index), draw(some)))
    return part, part.block(draw(st.sampled_from(MODES)), 4)


@pytest.fixture(params=[(1536, 96, 256), (0, 96, 5), (1536, 5, 256), (20, 3, 4)], ids=str)
def limits(request, monkeypatch):
    """The kernel's limits: as they are, and so small that little takes have every kind of call."""
    for name, value in zip(("SHORT_TAKE", "SHORT_ROWS", "LONG_ROWS"), request.param, strict=True):
        monkeypatch.setattr(cpu, name, value)


every_limit = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def random_qkv(count, heads=2, width=8):
    """A fused projection [N, 3, heads, width]; q, k and v are slices of it."""
    return torch.randn(count, 3, heads, width, generator=torch.Generator().manual_seed(0))


def with_gradients(function, qkv):
    """The output and the gradient of q, k, v for a fixed gradient of the output."""
    qkv = qkv.clone().requires_grad_()
    out = function(*qkv.unbind(1))
    out.backward(torch.randn(out.shape, generator=torch.Generator().manual_seed(1)))
    return out.detach(), qkv.grad


def assert_obvious(function, qkv, layout, block, rows=slice(None)):
    """The queries at `rows` get what the dense mask gives, and so do the gradients."""
    allowed = slow.allowed_pairs(layout.take_lengths, block)
    expected = with_gradients(lambda *x: slow.masked_attention(*x, allowed)[rows], qkv)
    for f, e in zip(with_gradients(function, qkv), expected, strict=True):
        torch.testing.assert_close(f, e, atol=1e-5, rtol=1e-5)


def assert_blind_to_later(plan, block, limit):
    """Blocks from `limit` on may change: not one bit of the earlier ones does."""
    later, (q, k, v) = block >= limit, random_qkv(len(block)).unbind(1)
    changed = [torch.where(later[:, None, None], 30 * torch.randn_like(x), x) for x in (q, k, v)]
    assert torch.equal(plan.attend(q, k, v)[~later], plan.attend(*changed)[~later])


@every_limit
@given(packed(), some, st.sampled_from((1, 8, 11, 44, 88)))
def test_equals_the_obvious_masked_version(limits, batch, seed, width):
    layout, block = batch
    plan = attention_plan(layout, block)
    rows = None if seed is None else chosen(len(block), seed).nonzero()[:, 0]
    plan = AttentionPlan(plan.first, plan.last, rows)
    every = slice(None) if rows is None else rows
    for function in (plan.attend, lambda q, k, v: public_attend(q[every], k, v, *plan.of_rows)):
        assert_obvious(function, random_qkv(len(block), 2, width), layout, block, every)


@every_limit
@given(packed(), st.data())
def test_later_blocks_never_change_a_bit(limits, batch, data):
    layout, block = batch
    limit = data.draw(st.integers(0, int(block.max()) if len(block) else 0))
    assert_blind_to_later(attention_plan(layout, block), block, limit)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_both_hold_at_real_sizes(mode):
    layout = layout_of_segments(LONG)
    block = layout.block(mode, 64)
    plan = attention_plan(layout, block)
    assert_obvious(plan.attend, random_qkv(len(block), 1), layout, block)
    assert_blind_to_later(plan, block, int(block.max()) // 2)


def test_memory_of_masks_is_linear_in_the_take():
    def cells(segments):
        layout = layout_of_segments([segments])
        calls = attention_plan(layout, layout.segment).calls
        return sum(c.mask.numel() for c in calls if c.mask is not None) / sum(segments)

    assert cells([45] * 400) <= 1.1 * cells([45] * 100)
    assert cells([45, 5000] * 10) <= cells([45, 5000])
