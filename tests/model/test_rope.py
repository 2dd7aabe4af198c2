from pathlib import Path

import torch
from safetensors.torch import load_file

from pjepa.model.layout import layout_of_segments
from pjepa.model.rope import Rope, RopeTable, angles, rope_table, rotate

GOLDEN = Path(__file__).parents[1] / "golden" / "pjepa" / "rope_rotation.safetensors"


def test_paired_rotation_is_multiplication_by_a_complex_number():
    layout = layout_of_segments([[3, 5, 2]])
    head_dim = 22
    by_segment, by_offset = Rope().widths(head_dim)
    assert (by_segment, by_offset) == (10, 12)
    x = torch.randn(10, 3, head_dim, dtype=torch.float64)
    found = rotate(x, rope_table(layout, head_dim, Rope()))
    start = 0
    for width, position in ((by_segment, layout.segment), (by_offset, layout.offset)):
        part = torch.view_as_complex(x[..., start : start + width].unflatten(-1, (-1, 2)))
        rate = 10000.0 ** (-torch.arange(width // 2, dtype=torch.float64) / (width // 2))
        turn = torch.polar(
            torch.ones(10, width // 2, dtype=torch.float64), position[:, None] * rate
        )
        expected = torch.view_as_real(part * turn[:, None]).flatten(-2)
        torch.testing.assert_close(found[..., start : start + width], expected, atol=1e-6, rtol=0)
        start += width
    assert torch.equal(found[..., start:], x[..., start:])


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
