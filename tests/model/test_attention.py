import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.checkpoint import checkpoint

from pjepa.model import flash
from pjepa.model.attention import (
    attend,
    attention_plan,
    chunks_of,
    layout_of_segments,
    of_one_dtype,
    prefix_attend,
)
from pjepa.model.calls import Sizes, calls_of
from tests.model import slow_attention as slow

MODES = ("clip_causal", "block_causal", "token_causal", "bidirectional")
CAUSAL = MODES[:3]
LONG = [[1] * 30, [2300, 1, 40], [45, 12, 1, 1030, 33, 60, 45, 20, 1, 1, 70, 260, 45] * 2, [300, 7]]
takes = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=4)
sizes = st.builds(
    Sizes,
    group=st.integers(0, 12),
    short_take=st.integers(0, 60),
    rows=st.integers(1, 12),
    chunk=st.integers(1, 12),
    tile=st.integers(1, 12),
    long_take=st.integers(0, 30),
    long_block=st.integers(1, 9),
)


@st.composite
def packed(draw):
    """A packed batch, whole or with some tokens left out, and its block ids."""
    layout = layout_of_segments(draw(takes))
    count = len(layout.index)
    keep = draw(st.just([True] * count) | st.lists(st.booleans(), min_size=count, max_size=count))
    part = slow.subset(layout, torch.tensor(keep))
    return part, part.block(draw(st.sampled_from(MODES)), 4)


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


@settings(max_examples=150, deadline=None)
@given(packed(), sizes, st.integers(1, 12))
def test_equals_the_obvious_masked_version(batch, sizes, limit):
    layout, block = batch
    plan = attention_plan(layout, block)
    qkv = random_qkv(len(block))
    assert_equals_slow(lambda *x: attend(*x, plan), qkv, layout, block)
    if len(block):
        calls = calls_of(plan.take_lengths, plan.ends, sizes)
        assert_equals_slow(lambda *x: flash.flash_attend(*x, calls), qkv, layout, block)
        chunks = chunks_of(plan, limit)
        assert_equals_slow(lambda *x: prefix_attend(*x, chunks), qkv, layout, block)


@settings(max_examples=150, deadline=None)
@given(packed(), sizes)
def test_calls_hold_every_allowed_pair_once(batch, sizes):
    layout, block = batch
    count = len(block)
    held, begun = torch.zeros(count, count, dtype=torch.int), torch.zeros(count, dtype=torch.bool)
    plan = attention_plan(layout, block)
    for c in calls_of(plan.take_lengths, plan.ends, sizes):
        pairs = torch.ones(c.stop - c.start, c.last - c.first, dtype=torch.int)
        pairs = pairs.tril() if c.causal else pairs
        held[c.start : c.stop, c.first : c.last] += pairs if c.mask is None else c.mask.exp().int()
        assert (begun[c.start : c.stop] == c.merged).all()
        begun[c.start : c.stop] = True
    assert torch.equal(held, slow.allowed_pairs(layout.take_lengths, block).int())


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", ["flash", "public"])
def test_equals_the_obvious_version_at_real_sizes(mode, way, monkeypatch):
    if way == "public":
        monkeypatch.setattr(flash, "_flash", None)
    layout = layout_of_segments(LONG)
    plan = attention_plan(layout, layout.block(mode, 64))
    qkv = random_qkv(len(layout.index), 1, 8)
    assert_equals_slow(lambda *x: attend(*x, plan), qkv, layout, layout.block(mode, 64))


def test_both_ways_agree_to_a_millionth():
    layout = layout_of_segments([[45] * 60])
    plan = attention_plan(layout, layout.segment)
    qkv = random_qkv(len(layout.index), 4, 64)
    fast = with_gradients(lambda *x: attend(*x, plan), qkv)
    public = with_gradients(lambda *x: prefix_attend(*x, plan.chunks), qkv)
    assert all(float((f - p).abs().max()) < 2e-6 for f, p in zip(fast, public, strict=True))


@pytest.mark.parametrize("width", [1, 11, 44, 88])
@pytest.mark.parametrize("segments", [[9, 1, 30], [45] * 50])
def test_any_head_width_and_slices_of_a_fused_projection(width, segments):
    layout = layout_of_segments([segments, [3]])
    plan = attention_plan(layout, layout.segment)
    qkv = torch.randn(len(layout.index), 3, 2, width).unbind(1)
    assert not qkv[0].is_contiguous()
    assert_equals_slow(lambda *x: attend(*x, plan), qkv, layout, layout.segment)
    strided = [x.transpose(0, 1).contiguous().transpose(0, 1) for x in qkv]
    reversed_width = [x.flip(2).transpose(1, 2).contiguous().transpose(1, 2) for x in qkv]
    for other in (strided, reversed_width):
        expected = attend(*(x.contiguous() for x in other), plan)
        assert torch.equal(attend(*other, plan), expected)


def test_a_broadcast_gradient_is_fine():
    layout = layout_of_segments([[3, 4]])
    plan = attention_plan(layout, layout.segment)
    q, k, v = (x.clone().requires_grad_() for x in random_qkv(7))
    attend(q, k, v, plan).sum().backward()
    allowed = slow.allowed_pairs(layout.take_lengths, layout.segment)
    p, m, w = (x.detach().clone().requires_grad_() for x in (q, k, v))
    slow.masked_attention(p, m, w, allowed).sum().backward()
    torch.testing.assert_close(v.grad, w.grad, atol=1e-5, rtol=1e-5)


@settings(max_examples=100, deadline=None)
@given(packed(), sizes, st.data())
def test_later_blocks_never_change_a_bit(batch, sizes, data):
    layout, block = batch
    plan = attention_plan(layout, block)
    later = block >= data.draw(st.integers(0, int(block.max()) if len(block) else 0))
    q, k, v = random_qkv(len(block))
    changed = [torch.where(later[:, None, None], 30 * torch.randn_like(x), x) for x in (q, k, v)]
    calls = calls_of(plan.take_lengths, plan.ends, sizes)
    for way in (lambda *x: attend(*x, plan), lambda *x: flash.flash_attend(*x, calls)):
        assert torch.equal(way(q, k, v)[~later], way(*changed)[~later])


@pytest.mark.parametrize("mode", CAUSAL)
def test_later_blocks_never_change_a_bit_at_real_sizes(mode):
    layout = layout_of_segments(LONG)
    block = layout.block(mode, 64)
    plan = attention_plan(layout, block)
    later = block >= int(block.max()) // 2
    q, k, v = random_qkv(len(block))
    changed = [torch.where(later[:, None, None], 30 * torch.randn_like(x), x) for x in (q, k, v)]
    assert torch.equal(attend(q, k, v, plan)[~later], attend(*changed, plan)[~later])


def test_the_same_input_gives_the_same_bytes():
    layout = layout_of_segments(LONG)
    qkv = random_qkv(len(layout.index))
    runs = [
        with_gradients(lambda *x: attend(*x, attention_plan(layout, layout.segment)), qkv)
        for _ in range(2)
    ]
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


def test_takes_do_not_see_each_other():
    layout = layout_of_segments(LONG)
    qkv = random_qkv(len(layout.index))
    together = attend(*qkv, attention_plan(layout, layout.segment))
    start = 0
    for segments in LONG:
        alone = layout_of_segments([segments])
        span = slice(start, start + sum(segments))
        out = attend(*(x[span] for x in qkv), attention_plan(alone, alone.segment))
        torch.testing.assert_close(out, together[span], atol=1e-5, rtol=1e-5)
        start = span.stop


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("way", ["flash", "public"])
def test_takes_without_context_tokens_are_skipped(mode, way, monkeypatch):
    if way == "public":
        monkeypatch.setattr(flash, "_flash", None)
    layout = layout_of_segments([[3], [2, 2], [1]])
    for keep in ([0, 0, 0, 1, 0, 1, 1, 0], [0] * 8, [1, 1, 1, 0, 0, 0, 0, 1]):
        part = slow.subset(layout, torch.tensor(keep, dtype=torch.bool))
        q, k, v = (x.clone().requires_grad_() for x in random_qkv(len(part.index)))
        out = attend(q, k, v, attention_plan(part, part.block(mode, 2)))
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


def test_an_operator_with_another_signature_is_not_used():
    name = "_scaled_dot_product_flash_attention_for_cpu"
    arguments = "query key value dropout_p is_causal attn_mask scale"
    assert flash._op(name, arguments, 2) is not None
    assert flash._op(name, arguments + " more", 2) is None
    assert flash._op(name, arguments, 3) is None
    assert flash._op("_no_such_operator", arguments, 2) is None


def test_double_precision_goes_the_public_way():
    layout = layout_of_segments([[3, 4], [5]])
    plan = attention_plan(layout, layout.segment)
    qkv = random_qkv(12).double()
    assert not flash.is_usable(qkv)
    assert_equals_slow(lambda *x: attend(*x, plan), qkv, layout, layout.segment, 1e-12)


def test_mixed_types_become_one():
    q, k, v = random_qkv(5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert {x.dtype for x in of_one_dtype(q, k, v.bfloat16())} == {torch.bfloat16}
        with torch.autocast("cpu", enabled=False):
            assert {x.dtype for x in of_one_dtype(q.double(), k, v)} == {torch.float32}
    layout = layout_of_segments([[2, 3]])
    plan = attention_plan(layout, layout.segment)
    mixed = attend(q.double(), k.double(), v, plan)
    assert torch.equal(mixed, attend(q, k, v, plan))


@pytest.mark.parametrize("segments", [[3, 4, 2], [45] * 50])
def test_checkpointing_changes_nothing(segments):
    layout = layout_of_segments([segments])
    plan = attention_plan(layout, layout.segment)
    qkv = random_qkv(len(layout.index))
    plain = with_gradients(lambda *x: attend(*x, plan), qkv)
    again = with_gradients(lambda *x: checkpoint(attend, *x, plan, use_reentrant=False), qkv)
    assert all(torch.equal(p, a) for p, a in zip(plain, again, strict=True))


def test_a_plan_made_without_gradients_serves_training_too():
    layout = layout_of_segments([[3, 4], [45] * 50])
    qkv = random_qkv(len(layout.index))
    with torch.inference_mode():
        plan = attention_plan(layout, layout.segment)
        quiet = attend(*qkv, plan)
    loud = with_gradients(lambda *x: attend(*x, plan), qkv)
    assert torch.equal(quiet, loud[0])


@pytest.mark.parametrize("segments", [[3, 4, 2], [45] * 50])
def test_it_can_stand_inside_a_compiled_function(segments):
    layout = layout_of_segments([segments])

    def attention(q, k, v):
        return 2 * attend(q, k, v + 1, attention_plan(layout, layout.segment))

    qkv = random_qkv(len(layout.index))
    found = with_gradients(torch.compile(attention, backend="aot_eager"), qkv)
    for f, e in zip(found, with_gradients(attention, qkv), strict=True):
        torch.testing.assert_close(f, e)
