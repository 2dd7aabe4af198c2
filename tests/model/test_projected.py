"""A layer in one step, at some tokens only or filled up from few rows, equals its modules."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pjepa.model import flash, projected
from pjepa.model.attention import Rope, attention_plan, layout_of_segments, rope_table
from pjepa.model.calls import Fill, Sizes, at_rows, calls_of
from pjepa.model.encoder import Block, Stack
from tests.model import slow_attention as slow

MODES = ("clip_causal", "block_causal", "token_causal", "bidirectional")
TAKES = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=6), min_size=1, max_size=4)
LONG = [[1] * 30, [200, 45, 1, 30] * 6]  # more than SIZES.short_take


def some_of(count: int, seed: int) -> Tensor:
    """Ascending rows, at least one."""
    chosen = torch.rand(count, generator=torch.Generator().manual_seed(seed)) < 0.7
    chosen[seed % count] = True
    return chosen.nonzero()[:, 0]


@settings(max_examples=60, deadline=None)
@given(
    TAKES, st.sampled_from(MODES), st.integers(0, 9), st.integers(0, 60), st.integers(1, 12)
)  # fmt: skip
def test_calls_at_rows_equal_those_rows(
    takes: list[list[int]], mode: str, seed: int, short: int, size: int
) -> None:
    layout = layout_of_segments(takes)
    block, rows = layout.block(mode, 4), some_of(len(layout.index), seed)
    plan = attention_plan(layout, block)
    sizes = Sizes(group=4, short_take=short, rows=size, chunk=size, tile=size, long_take=9)
    calls = at_rows(calls_of(plan.take_lengths, plan.ends, sizes, some=True), rows)
    q, k, v = torch.randn(3, len(block), 2, 8).requires_grad_().unbind(0)
    found = flash.flash_attend(q[rows], k, v, calls)
    allowed = slow.allowed_pairs(layout.take_lengths, block)
    expected = slow.masked_attention(q, k, v, allowed)[rows]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    seed_grad = torch.randn_like(found)
    for ours, theirs in zip(
        torch.autograd.grad(found, (q, k, v), seed_grad),
        torch.autograd.grad(expected, (q, k, v), seed_grad),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


def outcome(stack: Stack, x: Tensor, takes: list[list[int]], **options: object) -> list[Tensor]:
    """The output of a stack, the gradient of its input and those of all parameters."""
    layout = layout_of_segments(takes)
    heads = stack[0].attn.heads  # type: ignore[union-attr]
    table = rope_table(layout, x.shape[1] // heads, Rope("2d", str(options.pop("rope")), 100.0))
    plan = attention_plan(layout, layout.block(str(options.pop("mode")), 16))
    x = x.clone().requires_grad_()
    out = stack.run(x, table, plan, **options)  # type: ignore[arg-type]
    out.square().sum().backward()
    found = [out.detach(), x.grad, *(p.grad for p in stack.parameters())]
    stack.zero_grad()
    return [tensor.float() for tensor in found if tensor is not None]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("width", "heads", "rope"), [(16, 2, "paired"), (18, 2, "tiled")])
@pytest.mark.parametrize("depth", [1, 2])
def test_one_step_equals_the_modules(
    mode: str, width: int, heads: int, rope: str, depth: int
) -> None:
    stack = Stack(Block(width, heads, 2.0) for _ in range(depth))
    assert_equals_modules(stack, [[3, 5, 2], [7, 1]], mode, rope)


@pytest.mark.parametrize("mode", ["clip_causal", "token_causal"])
def test_one_step_equals_the_modules_in_long_takes(mode: str) -> None:
    assert_equals_modules(Stack([Block(8, 1, 2.0)]), LONG, mode, "paired")


def assert_equals_modules(stack: Stack, takes: list[list[int]], mode: str, rope: str) -> None:
    """Outputs and gradients; in double precision the modules are used."""
    torch.manual_seed(0)
    width, count = len(stack[0].norm1.weight), sum(map(sum, takes))  # type: ignore[union-attr,arg-type]
    hidden = some_of(count, 3)
    known = torch.tensor(sorted({*range(count)} - {*hidden.tolist()}))
    cases = [
        (torch.randn(count, width), {}),
        (torch.randn(count, width), {"rows": hidden}),
        (torch.randn(len(known) + 1, width), {"rows": hidden, "fill": Fill(known, hidden)}),
        (torch.randn(len(known) + 1, width), {"fill": Fill(known, hidden)}),
    ]
    for x, options in cases:
        assert projected.is_usable(x)
        fast = outcome(stack, x, takes, mode=mode, rope=rope, **options)
        plain = outcome(stack.double(), x.double(), takes, mode=mode, rope=rope, **options)
        stack.float()
        for ours, theirs in zip(fast, plain, strict=True):
            scale = float(theirs.abs().max())
            torch.testing.assert_close(ours, theirs, atol=2e-5 * max(scale, 1), rtol=0)


def test_filled_tokens_are_those_of_the_plain_fill() -> None:
    known, common = torch.tensor([1, 3, 4]), torch.tensor([0, 2, 5])
    rows = torch.randn(4, 2, 3, requires_grad=True)
    full = Fill(known, common).spread(rows)
    assert torch.equal(full[known], rows[:3])
    assert torch.equal(full[common], rows[3:].expand(3, 2, 3))
    seed = torch.randn_like(full)
    (gradient,) = torch.autograd.grad(full, rows, seed)
    torch.testing.assert_close(Fill(known, common).gathered(seed), gradient)


def test_nothing_visible_and_nothing_at_all_are_fine() -> None:
    stack, none = Stack([Block(8, 2, 2.0)]), torch.zeros(0, dtype=torch.long)
    hidden = torch.arange(5)
    fast = outcome(stack, torch.randn(1, 8), [[2, 3]], mode="token_causal", rope="paired",
                   rows=hidden, fill=Fill(none, hidden))  # fmt: skip
    assert fast[0].shape == (5, 8)
    layout = layout_of_segments([[1]]).at(none, (0,))
    table, plan = rope_table(layout, 4, Rope()), attention_plan(layout, layout.index)
    assert stack.run(torch.randn(1, 8), table, plan, none, Fill(none, none)).shape == (0, 8)
