"""The encoder equals the official V-JEPA 2.1 (golden vectors, README there states tolerances)."""

from copy import deepcopy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pjepa.patches import vjepa21
from pjepa.patches.vjepa21 import VARIANTS, PatchGrid, Variant, VJEPA21Encoder

FOLDER = Path(__file__).parents[1] / "golden/vjepa21"
GOLDEN = load_file(FOLDER / "encoder_tiny.safetensors")
ROPE = load_file(FOLDER / "rope.safetensors")
SMALL = Variant(width=32, depth=12, heads=2, mlp_hidden=139, levels=(2, 5, 8, 11))
RUNS = sorted({key.split("/")[0] for key in GOLDEN} - {"state"})
TINY = VARIANTS["vjepa2_1_vit_tiny"]


@pytest.fixture(scope="module")
def encoder() -> VJEPA21Encoder:
    model = VJEPA21Encoder(SMALL).eval()
    state = {k.removeprefix("state/"): v for k, v in GOLDEN.items() if k.startswith("state/")}
    model.load_state_dict(state, strict=True)
    return model


@torch.no_grad()
@pytest.mark.parametrize("run", RUNS)
def test_equals_official_encoder(encoder: VJEPA21Encoder, run: str) -> None:
    whole = "vid_64x64_t8" if run.startswith("masked") else run
    video, mask = GOLDEN[f"{whole}/input"], GOLDEN.get(f"{run}/mask")
    keep = None if mask is None else mask.long()
    # In float64, so that no CPU's order of summation counts: the golden vectors, sums of 1,536
    # float32 products, are themselves up to 3.9e-6 away from it.
    exact = deepcopy(encoder).double().embed(video.double(), keep)
    assert (exact - GOLDEN[f"{run}/tokens0"]).abs().max() <= 5e-6
    rope = vjepa21.rope_table(vjepa21.grid_of(video), 16, video.device)
    block0 = encoder.blocks[0](encoder.embed(video, keep), rope if keep is None else rope.at(keep))
    assert (block0 - GOLDEN[f"{run}/block0"]).abs().max() <= 1e-5
    assert (encoder(video, keep) - GOLDEN[f"{run}/out"]).abs().max() <= 1e-5
    assert (encoder.hierarchical(video, keep) - GOLDEN[f"{run}/hier"]).abs().max() <= 1e-5


def test_rope_equals_official_rotation() -> None:
    table = vjepa21.rope_table(PatchGrid(2, 3, 4), 64, torch.device("cpu"))
    rotated = vjepa21.rotate(ROPE["t2h3w4_interp/q_in"], table)
    assert (rotated - ROPE["t2h3w4_interp/q_rot"]).abs().max() <= 1e-6
    plain = vjepa21.rope_table_from_positions(ROPE["t2h3w4_nointerp/pos_thw"].float(), 64)
    rotated = vjepa21.rotate(ROPE["t2h3w4_nointerp/q_in"], plain)
    assert (rotated - ROPE["t2h3w4_nointerp/q_rot"]).abs().max() <= 1e-6


@pytest.mark.parametrize("grid", [PatchGrid(2, 3, 4), PatchGrid(2, 24, 24)])
def test_positions_equal_official(grid: PatchGrid) -> None:
    golden = ROPE[f"t{grid.steps}h{grid.rows}w{grid.columns}_interp/pos_thw"]
    torch.testing.assert_close(
        vjepa21.token_positions(grid, torch.device("cpu")), golden.float(), rtol=0, atol=1e-5
    )


@pytest.mark.parametrize(
    ("name", "parameters", "tensors"),
    [
        ("vjepa2_1_vit_base_384", 86_833_152, 158),
        ("vjepa2_1_vit_large_384", 304_680_960, 302),
        ("vjepa2_1_vit_giant_384", 1_013_267_968, 494),
        ("vjepa2_1_vit_gigantic_384", 1_845_216_768, 590),
    ],
)
def test_variant_has_the_released_number_of_parameters(
    name: str, parameters: int, tensors: int
) -> None:
    with torch.device("meta"):
        state = VJEPA21Encoder(VARIANTS[name]).state_dict()
    assert sum(t.numel() for t in state.values()) == parameters
    assert len(state) == tensors
    assert VARIANTS[name].head_dim == 64


@torch.no_grad()
def test_single_row_is_finite() -> None:
    model = vjepa21.initialise(VJEPA21Encoder(TINY), torch.Generator().manual_seed(0)).eval()
    assert model(torch.randn(1, 3, 4, 16, 48)).isfinite().all()


def test_rotation_is_float32_inside_and_the_compiled_formula_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = vjepa21.rope_table(PatchGrid(2, 3, 4), 64, torch.device("cpu"))
    x = torch.randn(1, 2, 24, 64)
    eager, half = vjepa21.rotate(x, table), vjepa21.rotate(x.bfloat16(), table)
    assert (table.cos.dtype, half.dtype) == (torch.float32, torch.bfloat16)
    torch.testing.assert_close(half, vjepa21.rotate(x.bfloat16().float(), table).bfloat16())
    monkeypatch.setattr("torch.compiler.is_compiling", lambda: True)
    torch.testing.assert_close(vjepa21.rotate(x, table), eager, atol=1e-6, rtol=0)


def test_initialisation_scales_output_projections_with_depth() -> None:
    model = vjepa21.initialise(VJEPA21Encoder(TINY), torch.Generator().manual_seed(0))
    weights = [block.mlp.fc2.weight.std().item() for block in model.blocks]
    for index, std in enumerate(weights):
        assert std == pytest.approx(0.02 / (2 * (index + 1)) ** 0.5, rel=0.05)


def test_four_dimensional_image_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"give images as \[B, 3, 1, H, W\]"):
        VJEPA21Encoder(TINY)(torch.zeros(1, 3, 32, 32))
