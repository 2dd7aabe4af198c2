"""A block at some tokens only, or filled up from few rows, equals the whole one; dropout."""

import pytest
import torch
from torch import Tensor

from pjepa.model.attention import attention_plan, layout_of_segments, rope_table
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import Block, ProcedureEncoder, Stack

MODES = ("clip_causal", "block_causal", "token_causal", "bidirectional")
TAKES = [[3, 5, 2], [7, 1]]
HIDDEN = torch.tensor([0, 2, 3, 4, 9, 11, 12, 16])
KNOWN = torch.tensor([1, 5, 6, 7, 8, 10, 13, 14, 15, 17])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("recompute", [False, True])
def test_wanted_rows_and_shared_tokens_change_nothing(
    mode: str, depth: int, recompute: bool
) -> None:
    torch.manual_seed(0)
    config = EncoderConfig(d_in=8, width=16, heads=2)
    stack, layout = Stack(Block(16, 2, 2.0) for _ in range(depth)), layout_of_segments(TAKES)
    stack.recompute = recompute
    table, plan = rope_table(layout, 2, config), attention_plan(layout, layout.block(mode, 4))
    shared = torch.randn(len(KNOWN) + 1, 16, requires_grad=True)  # the last one is all hidden ones
    tokens = torch.full_like(layout.index, len(KNOWN))
    tokens[KNOWN] = torch.arange(len(KNOWN))
    seed = torch.randn(len(HIDDEN), 16)

    def gradients(out: Tensor) -> list[Tensor]:
        return list(torch.autograd.grad(out, [shared, *stack.parameters()], seed))

    expected = stack.run(shared[tokens], table, plan)[HIDDEN]
    found = stack.run(shared, table, plan, HIDDEN, tokens)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for ours, theirs in zip(gradients(found), gradients(expected), strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(stack.run(shared, table, plan, None, tokens)[HIDDEN], expected)


def test_no_tokens_and_nothing_visible_are_fine() -> None:
    config, none = EncoderConfig(d_in=8, width=8, heads=2), torch.zeros(0, dtype=torch.long)
    stack = Stack([Block(8, 2, 2.0)])
    layout = layout_of_segments([[2, 3]])
    table, plan = rope_table(layout, 2, config), attention_plan(layout, layout.index)
    everything, only = torch.arange(5), torch.zeros(5, dtype=torch.long)
    assert stack.run(torch.randn(1, 8), table, plan, everything, only).shape == (5, 8)
    empty = layout.at(none, (0,))
    table, plan = rope_table(empty, 2, config), attention_plan(empty, empty.index)
    assert stack.run(torch.randn(1, 8), table, plan, none, none).shape == (0, 8)


def test_the_encoder_drops_only_while_training() -> None:
    torch.manual_seed(0)
    encoder = ProcedureEncoder(EncoderConfig(d_in=8, width=16, heads=2, depth=2, dropout=0.5))
    x = torch.randn(12, 8)
    layout = layout_of_segments([[5, 7]])
    still = encoder.eval()(x, layout)
    assert torch.equal(still, encoder(x, layout))
    encoder.train()
    torch.manual_seed(1)
    first, second = encoder(x, layout), encoder(x, layout)
    assert not torch.equal(first, second)
    assert not torch.equal(first, still)
    torch.manual_seed(1)
    assert torch.equal(first, encoder(x, layout))
