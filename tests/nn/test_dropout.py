"""Dropout drops the right share, scales the rest, and passes the right gradients."""

import pytest
import torch
from torch import Tensor

from pjepa.model.attention import layout_of_segments
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder
from pjepa.nn.layers import add_dropped, dropped, keep_mask


@pytest.mark.parametrize("p", [0.1, 0.2, 0.5])
def test_dropped_share_and_scale(p: float) -> None:
    torch.manual_seed(0)
    keep = keep_mask((1001, 999), p, torch.device("cpu")).double()
    assert set(keep.unique().tolist()) == {0.0, 1.0}
    assert float(keep.mean()) == pytest.approx(1 - p, abs=5 * (p * (1 - p) / 1e6) ** 0.5)
    rows, columns = keep[:, 1:] - (1 - p), keep[:, :-1] - (1 - p)
    assert float((rows * columns).mean()) == pytest.approx(0, abs=2e-3)  # neighbours share no bits
    threes = torch.full((50, 40), 3.0)
    for found in (add_dropped(torch.ones(50, 40), threes, p) - 1, dropped(threes, p)):
        kept = found[found != 0]
        torch.testing.assert_close(kept, torch.full_like(kept, 3 / (1 - p)))


def test_gradients() -> None:
    x, y = (torch.randn(2, 7, 3, dtype=torch.float64).requires_grad_() for _ in "xy")

    def added(x: Tensor, y: Tensor) -> Tensor:
        torch.manual_seed(3)
        return add_dropped(x, y, 0.4)

    def alone(x: Tensor) -> Tensor:
        torch.manual_seed(3)
        return dropped(x, 0.4)

    assert torch.autograd.gradcheck(added, (x, y))
    assert torch.autograd.gradcheck(alone, (x,))
    assert torch.equal(added(torch.zeros_like(y), y), alone(y))  # the same elements
    assert torch.equal(add_dropped(x, y, 0.0), x + y)
    assert dropped(x, 0.0) is x


def test_a_branch_of_less_precision_keeps_the_sum_full() -> None:
    """Under autocast a branch ends in bfloat16 while the residual stream has 32 bits."""
    x = torch.ones(30, 20, requires_grad=True)
    y = torch.full((30, 20), 3.0, dtype=torch.bfloat16, requires_grad=True)
    found = add_dropped(x, y, 0.5)
    assert found.dtype == torch.float32
    assert set(found.unique().tolist()) == {1.0, 7.0}
    found.sum().backward()
    assert y.grad is not None
    assert y.grad.dtype == torch.bfloat16
    assert torch.equal(y.grad, ((found - 1) / 3).bfloat16())


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
