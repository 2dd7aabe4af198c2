import pytest
import torch

from pjepa.model.attention import layout_of_segments
from pjepa.model.style import fit_style, visible_style
from pjepa.ui.console import InputError

TAKES, LENGTH, WIDTH = 40, 60, 12


def world(seed=0):
    """Takes whose first three channels carry style and whose others carry what happens."""
    generator = torch.Generator().manual_seed(seed)
    style = torch.zeros(TAKES, 1, WIDTH)
    style[..., :3] = 3 * torch.randn(TAKES, 1, 3, generator=generator)
    tokens = torch.randn(TAKES, LENGTH, WIDTH, generator=generator)
    tokens[..., :3] *= 0.3
    return style, tokens


def test_style_is_removed_early_and_content_is_kept():
    style, content = world()
    fitted = fit_style(list(style + content), 6, 1.0)
    style, content = world(1)
    layout = layout_of_segments([[10] * 6])
    for number in range(10):
        x = (style + content)[number]
        left = x - visible_style(x, layout, layout.segment, fitted, 1.0)
        early = slice(0, 10)
        assert (left - content[number])[early, :3].abs().mean() < 0.3  # the style had spread 3
        assert (left - content[number])[early, 3:].abs().mean() < 0.25  # the first segment stays


def test_posterior_mean_by_the_textbook():
    style, content = world()
    tokens = style + content
    fitted = fit_style(list(tokens), WIDTH, 2.0)
    layout = layout_of_segments([[LENGTH]])
    found = visible_style(tokens[0], layout, layout.segment, fitted, 2.0)[0]
    spread = (tokens - tokens.mean(dim=1, keepdim=True)).reshape(-1, WIDTH).double()
    within = spread.T @ spread / len(spread)
    within += 0.01 * within.diagonal().mean() * torch.eye(WIDTH, dtype=torch.float64)
    means = tokens.mean(dim=1).double()
    centred = means - means.mean(dim=0)
    between = centred.T @ centred / TAKES - within * 2.0 / LENGTH
    whiten = torch.linalg.inv(torch.linalg.cholesky(within))
    values, axes = torch.linalg.eigh(whiten @ between @ whiten.T)
    colour = torch.linalg.cholesky(within) @ axes
    between = colour * values.clamp_min(0) @ colour.T  # B may not be negative
    gain = between @ torch.linalg.inv(between + within * 2.0 / LENGTH)
    torch.testing.assert_close(found.double(), gain @ means[0], atol=1e-4, rtol=1e-3)


def test_features_that_never_change_inside_a_take_are_named_and_one_change_is_enough():
    takes = 3.0 * torch.randn(4, 1, WIDTH).expand(4, LENGTH, WIDTH).clone()
    with pytest.raises(InputError, match="no feature changes inside any take; check the"):
        fit_style(list(takes), 6, 1.0)
    takes[1, :, 0] = torch.randn(LENGTH)
    assert fit_style(list(takes), 6, 1.0).strength.isfinite().all()
