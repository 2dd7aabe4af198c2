import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

from pjepa.model import cpu
from pjepa.model.attention import (
    AttentionPlan,
    attention_plan,
    layout_of_segments,
    of_one_dtype,
    public_attend,
)
from tests.model import slow_attention as slow

MODES = ("clip_causal", "block_causal", "token_causal", "bidirectional")
CAUSAL = MODES[:3]
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


def random_qkv(count, heads=2, width=8, seed=0):
    return torch.randn(3, count, heads, width, generator=torch.Generator().manual_seed(seed))


def with_gradients(function, qkv):
    """The output and the gradients of q, k, v for a fixed gradient of the output."""
    q, k, v = (x.clone().requires_grad_() for x in qkv)
    out = function(q, k, v)
    out.backward(torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out.dtype))
    found = [x.grad if x.grad is not None else torch.zeros_like(x) for x in (q, k, v)]
    return [out.detach(), *found]


def assert_equals_slow(function, qkv, layout, block, tolerance=1e-5):
    allowed = slow.allowed_pairs(layout.take_lengths, block)
    expected = with_gradients(lambda *x: slow.masked_attention(*x, allowed), qkv)
    found = with_gradients(function, qkv)
    for f, e in zip(found, expected, strict=True):
        torch.testing.assert_close(f, e, atol=tolerance, rtol=tolerance)


@every_limit
@given(packed(), some)
def test_equals_the_obvious_masked_version(limits, batch, seed):
    layout, block = batch
    plan = attention_plan(layout, block)
    rows = None if seed is None else chosen(len(block), seed).nonzero()[:, 0]
    plan = AttentionPlan(plan.first, plan.last, rows)
    allowed = slow.allowed_pairs(layout.take_lengths, block)
    qkv, every = random_qkv(len(block)), slice(None) if rows is None else rows
    expected = with_gradients(lambda *x: slow.masked_attention(*x, allowed)[every], qkv)
    fast = with_gradients(plan.attend, qkv)
    public = with_gradients(lambda q, k, v: public_attend(q[every], k, v, *plan.of_rows), qkv)
    for found in (fast, public):
        for f, e in zip(found, expected, strict=True):
            torch.testing.assert_close(f, e, atol=1e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_equals_the_obvious_version_at_real_sizes(mode):
    layout = layout_of_segments(LONG)
    plan = attention_plan(layout, layout.block(mode, 64))
    qkv = random_qkv(len(layout.index), 1, 8)
    assert_equals_slow(plan.attend, qkv, layout, layout.block(mode, 64))


@pytest.mark.parametrize("width", [1, 11, 44, 88])
@pytest.mark.parametrize("segments", [[9, 1, 30], [45] * 50])
def test_any_head_width_and_slices_of_a_fused_projection(width, segments):
    layout = layout_of_segments([segments, [3]])
    plan = attention_plan(layout, layout.segment)
    qkv = torch.randn(len(layout.index), 3, 2, width).unbind(1)
    assert not qkv[0].is_contiguous()
    assert_equals_slow(plan.attend, qkv, layout, layout.segment)
    strided = [x.transpose(0, 1).contiguous().transpose(0, 1) for x in qkv]
    reversed_width = [x.flip(2).transpose(1, 2).contiguous().transpose(1, 2) for x in qkv]
    for other in (strided, reversed_width):
        expected = plan.attend(*(x.contiguous() for x in other))
        assert torch.equal(plan.attend(*other), expected)


@every_limit
@given(packed(), st.data())
def test_later_blocks_never_change_a_bit(limits, batch, data):
    layout, block = batch
    plan = attention_plan(layout, block)
    later = block >= data.draw(st.integers(0, int(block.max()) if len(block) else 0))
    q, k, v = random_qkv(len(block))
    changed = [torch.where(later[:, None, None], 30 * torch.randn_like(x), x) for x in (q, k, v)]
    assert torch.equal(plan.attend(q, k, v)[~later], plan.attend(*changed)[~later])


@pytest.mark.parametrize("mode", CAUSAL)
def test_later_blocks_never_change_a_bit_at_real_sizes(mode):
    layout = layout_of_segments(LONG)
    block = layout.block(mode, 64)
    plan = attention_plan(layout, block)
    later = block >= int(block.max()) // 2
    q, k, v = random_qkv(len(block))
    changed = [torch.where(later[:, None, None], 30 * torch.randn_like(x), x) for x in (q, k, v)]
    assert torch.equal(plan.attend(q, k, v)[~later], plan.attend(*changed)[~later])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])  # the kernel, the public way
def test_takes_without_context_tokens_are_skipped(mode, dtype):
    layout = layout_of_segments([[3], [2, 2], [1]])
    for keep in ([0, 0, 0, 1, 0, 1, 1, 0], [0] * 8, [1, 1, 1, 0, 0, 0, 0, 1]):
        part = slow.subset(layout, torch.tensor(keep, dtype=torch.bool))
        q, k, v = (x.clone().requires_grad_() for x in random_qkv(len(part.index)).to(dtype))
        out = attention_plan(part, part.block(mode, 2)).attend(q, k, v)
        out.sum().backward()
        assert out.shape == q.shape
        assert out.isfinite().all()
        assert v.grad.isfinite().all()


def test_memory_of_masks_is_linear_in_the_take():
    def cells(segments):
        layout = layout_of_segments([segments])
        calls = attention_plan(layout, layout.segment).calls
        return sum(c.mask.numel() for c in calls if c.mask is not None) / sum(segments)

    assert cells([45] * 400) <= 1.1 * cells([45] * 100)
    assert cells([45, 5000] * 10) <= cells([45, 5000])


def test_double_precision_goes_the_public_way():
    layout = layout_of_segments([[3, 4], [5]])
    plan = attention_plan(layout, layout.segment)
    qkv = random_qkv(12).double()
    assert not cpu.is_usable(qkv)
    assert_equals_slow(plan.attend, qkv, layout, layout.segment, 1e-12)


def test_mixed_types_become_one():
    q, k, v = random_qkv(5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert {x.dtype for x in of_one_dtype(q, k, v.bfloat16())} == {torch.bfloat16}
        with torch.autocast("cpu", enabled=False):
            assert {x.dtype for x in of_one_dtype(q.double(), k, v)} == {torch.float32}
    layout = layout_of_segments([[2, 3]])
    plan = attention_plan(layout, layout.segment)
    mixed = plan.attend(q.double(), k.double(), v)
    assert torch.equal(mixed, plan.attend(q, k, v))


@pytest.mark.parametrize("segments", [[3, 4, 2], [45] * 50])
def test_checkpointing_and_repeating_change_no_bit(segments):
    layout = layout_of_segments([segments])
    plan = attention_plan(layout, layout.segment)
    qkv = random_qkv(len(layout.index))
    plain, twice = (with_gradients(plan.attend, qkv) for _ in range(2))
    again = with_gradients(lambda *x: checkpoint(plan.attend, *x, use_reentrant=False), qkv)
    for one, *others in zip(plain, twice, again, strict=True):
        assert all(torch.equal(one, other) for other in others)


def test_a_plan_made_without_gradients_serves_training_too():
    layout = layout_of_segments([[3, 4], [45] * 50])
    qkv = random_qkv(len(layout.index))
    with torch.inference_mode():
        plan = attention_plan(layout, layout.segment)
        quiet = plan.attend(*qkv)
    loud = with_gradients(plan.attend, qkv)
    assert torch.equal(quiet, loud[0])


@pytest.mark.parametrize("segments", [[3, 4, 2], [45] * 50])
def test_it_can_stand_inside_a_compiled_function(segments):
    layout = layout_of_segments([segments])

    def attention(q, k, v):
        return 2 * attention_plan(layout, layout.segment).attend(q, k, v + 1)

    qkv = random_qkv(len(layout.index))
    found = with_gradients(torch.compile(attention, backend="aot_eager"), qkv)
    for f, e in zip(found, with_gradients(attention, qkv), strict=True):
        torch.testing.assert_close(f, e)
