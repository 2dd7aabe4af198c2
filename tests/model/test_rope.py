from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from pjepa.model.attention import (
    Layout,
    RopeTable,
    angles,
    layout_of_segments,
    rope_table,
    rope_widths,
    rotate,
)
from pjepa.model.config import EncoderConfig

GOLDEN = Path(__file__).parents[1] / "golden" / "pjepa" / "rope_rotation.safetensors"


def turned(x: Tensor, layout: Layout, **settings: object) -> Tensor:
    """x [N, ..., d_h] turned as by a model of heads of this width."""
    return rotate(x, rope_table(layout, 4, of_width(x.shape[-1], **settings)))


def of_width(head_dim: int, **settings: object) -> EncoderConfig:
    values = {"d_in": 8, "width": 4 * head_dim, "heads": 4, "rope_base": 100.0, **settings}
    return EncoderConfig.model_validate(values)


def by_complex_numbers(x: Tensor, layout: Layout, config: EncoderConfig) -> Tensor:
    """x [N, heads, d_h] turned pair by pair: z = a + ib becomes z e^(i angle)."""
    by_segment, by_offset = rope_widths(x.shape[-1], None, None)
    places = (layout.segment, layout.offset)
    if config.positions == "1d":
        places = (layout.index, layout.index)
    parts, start = [], 0
    for width, position in zip((by_segment, by_offset), places, strict=True):
        half = width // 2
        rate = config.rope_base ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = (position[:, None] * rate)[:, None]  # [N, 1, width / 2]
        if config.positions == "none":
            angle = torch.zeros_like(angle)
        z = torch.view_as_complex(x[..., start : start + width].contiguous().unflatten(-1, (-1, 2)))
        turned = z * torch.polar(torch.ones_like(angle), angle)
        parts.append(torch.view_as_real(turned).flatten(-2))
        start += width
    return torch.cat([*parts, x[..., start:]], dim=-1)


@pytest.mark.parametrize("positions", ["2d", "1d", "none"])
def test_every_width_turns_as_complex_numbers_do(positions: str) -> None:
    layout = layout_of_segments([[3, 5, 2], [1, 4]])
    torch.manual_seed(0)
    # Angles of the tables are float32: their rounding grows with the position, 4 in 2d, 14 in 1d.
    tolerance = 4e-6 if positions == "1d" else 1e-6
    for head_dim in range(2, 65):
        x = torch.randn(15, 3, head_dim, dtype=torch.float64, requires_grad=True)
        found = turned(x, layout, positions=positions)
        expected = by_complex_numbers(x.detach(), layout, of_width(head_dim, positions=positions))
        torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)
        single = x.detach().float().requires_grad_()
        fast = turned(single, layout, positions=positions)
        torch.testing.assert_close(fast.double(), expected, atol=1e-5, rtol=0)
        seed = torch.randn_like(found)
        (gradient,) = torch.autograd.grad(found, x, seed)
        (fast_gradient,) = torch.autograd.grad(fast, single, seed.float())
        torch.testing.assert_close(fast_gradient.double(), gradient, atol=1e-5, rtol=0)


def test_the_release_splits_a_head() -> None:
    """Halves rounded down to pairs; what is left over is not turned."""
    expected = {2: (0, 2), 3: (0, 2), 11: (4, 6), 22: (10, 12), 25: (12, 12), 88: (44, 44)}
    assert {width: rope_widths(width, None, None) for width in expected} == expected


def test_tiled_matches_the_authors_code():
    golden = load_file(GOLDEN)
    for width in (4, 8, 44, 48):
        x, position = golden[f"x.{width}"], golden[f"pos.{width}"]
        turn = angles(position.flatten(), width, 10000.0, "tiled")
        shaped = x.reshape(-1, len(turn), width).transpose(0, 1)  # [N, heads, width]
        found = rotate(shaped, RopeTable(turn.cos(), turn.sin()))
        expected = golden[f"y.{width}"].reshape(-1, len(turn), width).transpose(0, 1)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_channels_can_be_given_to_either_coordinate_or_to_none():
    layout = layout_of_segments([[3, 5, 2]])
    x = torch.randn(10, 1, 16)
    for given, width in (({"rope_segment": 4, "rope_offset": 6}, 10), ({"rope_offset": 0}, 16)):
        found = turned(x, layout, **given)
        assert torch.equal(found[..., width:], x[..., width:])
        assert (found[-1, :, :width] != x[-1, :, :width]).any()
    by_segment_only = turned(x[:1].expand(10, 1, 16), layout, rope_offset=0)
    assert torch.equal(by_segment_only[3], by_segment_only[7])
    assert not torch.equal(by_segment_only[2], by_segment_only[3])
