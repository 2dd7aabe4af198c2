"""The hand-written gradients are those of the plain formulas."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from pjepa.probes.ltcontext.attention import (
    Band,
    Pattern,
    Strides,
    Windows,
    sparse_attention,
    visibility,
)
from pjepa.probes.ltcontext.model import shifted_sum


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("length", [1, 2, 3, 12])
@pytest.mark.parametrize("dilation", [1, 3, 5])
@pytest.mark.parametrize("causal", [False, True])
def test_shifted_sum_is_a_dilated_convolution(length: int, dilation: int, causal: bool) -> None:
    torch.manual_seed(0)
    x, weight, bias = normal(2, length, 4), normal(4, 4, 3), normal(4)
    shifts = (2 * dilation, dilation, 0) if causal else (dilation, 0, -dilation)
    padding = (2 * dilation, 0) if causal else (dilation, dilation)
    expected = F.conv1d(F.pad(x.transpose(1, 2), padding), weight, bias, dilation=dilation)
    found = shifted_sum(x, weight, bias, shifts)
    torch.testing.assert_close(found, expected.transpose(1, 2))
    seed = torch.randn_like(found)
    ours = torch.autograd.grad(found, (x, weight, bias), seed)
    theirs = torch.autograd.grad(expected, (x, weight, bias), seed.transpose(1, 2))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("pattern", [Windows(4), Band(3), Strides(3)], ids=str)
@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("own", ["all", "keys", "queries"])
@pytest.mark.parametrize("kept", [0, 2**17])
def test_attention_gradient_under_dropout(
    pattern: Pattern, heads: int, own: str, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pjepa.probes.ltcontext.attention.KEPT", kept)
    torch.manual_seed(0)
    x, values = normal(2, 7, 4), None if own == "all" else normal(2, 7, 4)
    weight, offset = normal(12, 4), normal(12)
    valid = torch.tensor([[True] * 7, [True] * 5 + [False] * 2])
    segment = torch.tensor([[0, 0, 1, 1, 1, 2, 2], [0, 1, 1, 1, 2, 2, 2]])
    visible = visibility(pattern, valid, segment, torch.float64)

    def seeded(*inputs: Tensor) -> Tensor:
        torch.manual_seed(5)
        x, weight, offset, *values = inputs
        found = sparse_attention(
            x, values[0] if values else None, weight, offset, visible, heads, 0.3, own == "keys"
        )
        return found * valid[..., None]  # padded queries mean nothing

    inputs = (x, weight, offset) if values is None else (x, weight, offset, values)
    assert torch.autograd.gradcheck(seeded, inputs, fast_mode=True)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_short_and_long_takes_have_the_same_gradient(
    dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(*shape).requires_grad_() for shape in ((1, 40, 8), (24, 8), (24,))]
    visible = visibility(Windows(8), torch.ones(1, 40, dtype=torch.bool), None, torch.float32)
    found = []
    for kept in (0, 2**17):
        monkeypatch.setattr("pjepa.probes.ltcontext.attention.KEPT", kept)
        torch.manual_seed(1)
        x, weight, offset = inputs
        y = sparse_attention(x, None, weight, offset, visible, 2, dropout)
        found.append([y, *torch.autograd.grad(y.square().sum(), inputs)])
    assert all(map(torch.equal, *found))


def test_key_windows_are_views() -> None:
    take = torch.randn(1, 24, 1, 2)
    for view in (Windows(4).keys(take), Windows(4).queries(take), Strides(3).keys(take)):
        assert view.untyped_storage().data_ptr() == take.untyped_storage().data_ptr()
