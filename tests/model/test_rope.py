from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from pjepa.model.attention import (
    Layout,
    Rope,
    RopeTable,
    angles,
    layout_of_segments,
    rope_table,
    rotate,
    rotate_,
)
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder

GOLDEN = Path(__file__).parents[1] / "golden" / "pjepa" / "rope_rotation.safetensors"


def by_complex_numbers(x: Tensor, layout: Layout, rope: Rope) -> Tensor:
    """x [N, heads, d_h] turned pair by pair: z = a + ib becomes z e^(i angle).

    A tiled table has two angles for a pair: a is the real part under the first, b the imaginary
    part under the second.
    """
    by_segment, by_offset = rope.widths(x.shape[-1])
    places = (layout.segment, layout.offset)
    if rope.positions == "1d":
        places = (layout.index, layout.index)
    parts, start = [], 0
    for width, position in zip((by_segment, by_offset), places, strict=True):
        half = width // 2
        rate = rope.base ** (-torch.arange(half, dtype=torch.float64) / half)
        channel = torch.arange(width) // 2 if rope.convention == "paired" else torch.arange(width)
        angle = position[:, None] * rate[channel % max(half, 1)]  # [N, width]
        if rope.positions == "none":
            angle = torch.zeros_like(angle)
        turn = torch.polar(torch.ones_like(angle), angle)[:, None]
        part = x[..., start : start + width].contiguous()
        z = torch.view_as_complex(part.unflatten(-1, (-1, 2)))
        pair = (z * turn[..., 0::2]).real, (z * turn[..., 1::2]).imag
        parts.append(torch.stack(pair, dim=-1).flatten(-2))
        start += width
    return torch.cat([*parts, x[..., start:]], dim=-1)


@pytest.mark.parametrize("convention", ["paired", "tiled"])
@pytest.mark.parametrize("positions", ["2d", "1d", "none"])
def test_every_width_turns_as_complex_numbers_do(convention: str, positions: str) -> None:
    layout = layout_of_segments([[3, 5, 2], [1, 4]])
    rope = Rope(positions, convention, 100.0)
    torch.manual_seed(0)
    # Angles of the tables are float32: their rounding grows with the position, 4 in 2d, 14 in 1d.
    tolerance = 4e-6 if positions == "1d" else 1e-6
    for head_dim in range(2, 65):
        x = torch.randn(15, 3, head_dim, dtype=torch.float64)
        found = rotate(x, rope_table(layout, head_dim, rope))
        expected = by_complex_numbers(x, layout, rope)
        torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("convention", ["paired", "tiled"])
@pytest.mark.parametrize("head_dim", [2, 7, 12, 22, 25])
def test_turning_in_place_and_back_is_the_map_and_its_gradient(
    convention: str, head_dim: int
) -> None:
    table = rope_table(layout_of_segments([[3, 5, 2]]), head_dim, Rope("2d", convention, 100.0))
    x = torch.randn(10, 2, 3, head_dim, requires_grad=True)
    expected = rotate(x, table)
    seed = torch.randn_like(expected)
    (gradient,) = torch.autograd.grad(expected, x, seed)
    found = x.detach().clone()
    rotate_(found, table)
    torch.testing.assert_close(found, expected.detach())
    rotate_(seed, table.back)
    torch.testing.assert_close(seed, gradient)


def test_the_release_splits_a_head() -> None:
    """Halves rounded down to pairs; what is left over is not turned."""
    expected = {2: (0, 2), 3: (0, 2), 11: (4, 6), 22: (10, 12), 25: (12, 12), 88: (44, 44)}
    assert {width: Rope().widths(width) for width in expected} == expected


@pytest.mark.parametrize(("width", "heads"), [(100, 4), (22, 2), (9, 3), (8, 4)])
@pytest.mark.parametrize("attention", ["clip_causal", "token_causal"])
def test_an_encoder_of_any_head_width_trains(width: int, heads: int, attention: str) -> None:
    torch.manual_seed(0)
    config = EncoderConfig(d_in=7, width=width, depth=2, heads=heads, attention=attention)
    encoder, layout = ProcedureEncoder(config).double(), layout_of_segments([[4, 9, 3], [5, 6]])
    x = torch.randn(27, 7, dtype=torch.float64)
    slow = encoder(x, layout).square().sum()  # double precision goes by masks
    fast = encoder.float()(x.float(), layout).square().sum()
    torch.testing.assert_close(fast.double(), slow, rtol=1e-5, atol=0)
    fast.backward()
    assert all(bool(p.grad.isfinite().all()) for p in encoder.parameters() if p.grad is not None)


def test_paired_scores_depend_on_distance_only():
    x = torch.randn(1, 1, 16).expand(40, 1, 16)
    turn = angles(torch.arange(40), 16, 10000.0, "paired")
    y = rotate(x, RopeTable(turn.cos(), turn.sin()))[:, 0]
    scores = y @ y.T
    for distance in (1, 5, 17):
        diagonal = scores.diagonal(distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal), atol=1e-4, rtol=0)


def test_tiled_matches_the_authors_code():
    golden = load_file(GOLDEN)
    for width in (4, 8, 44, 48):
        x, position = golden[f"x.{width}"], golden[f"pos.{width}"]
        turn = angles(position.flatten(), width, 10000.0, "tiled")
        shaped = x.reshape(-1, len(turn), width).transpose(0, 1)  # [N, heads, width]
        found = rotate(shaped, RopeTable(turn.cos(), turn.sin()))
        expected = golden[f"y.{width}"].reshape(-1, len(turn), width).transpose(0, 1)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_positions_none_changes_nothing():
    layout = layout_of_segments([[4, 4]])
    x = torch.randn(8, 2, 12)
    assert torch.equal(rotate(x, rope_table(layout, 12, Rope("none"))), x)


def test_channels_can_be_given_to_either_coordinate_or_to_none():
    layout = layout_of_segments([[3, 5, 2]])
    x = torch.randn(10, 1, 16)
    for rope, turned in ((Rope(by_segment=4, by_offset=6), 10), (Rope(by_offset=0), 16)):
        found = rotate(x, rope_table(layout, 16, rope))
        assert torch.equal(found[..., turned:], x[..., turned:])
        assert (found[-1, :, :turned] != x[-1, :, :turned]).any()
    by_segment_only = rotate(x[:1].expand(10, 1, 16), rope_table(layout, 16, Rope(by_offset=0)))
    assert torch.equal(by_segment_only[3], by_segment_only[7])
    assert not torch.equal(by_segment_only[2], by_segment_only[3])
