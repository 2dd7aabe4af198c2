"""The arithmetic of extraction against counted operations and real files."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from typer.testing import CliRunner

from pjepa.patches.backbone import BackboneFacts, backbone_facts
from pjepa.patches.checkpoint import empty_encoder, named_variant
from pjepa.patches.config import PatchesConfig
from pjepa.patches.cost import (
    PEAK_TFLOPS,
    ExtractionPlan,
    decoding_share,
    extraction_plan,
    gpu_hours,
    hourly_costs,
    sizes_alone,
    window_flops,
)
from pjepa.tools.cli import app
from tests.patches.patch_infos import tiny_config
from tests.video.films import write_film


def case(
    name: str, frames: int = 64, crop: int = 384, grid: int = 0
) -> tuple[PatchesConfig, BackboneFacts]:
    name = f"vjepa2_1_vit_{name}_384"
    config = PatchesConfig(backbone=name, frames_per_window=frames, crop=crop, grid=grid)
    return config, sizes_alone(config)


@pytest.mark.parametrize(
    ("name", "frames", "teraflops"),
    [
        ("base", 16, 1.6), ("base", 64, 15.7), ("large", 16, 4.9), ("large", 64, 44.6),
        ("giant", 16, 14.1), ("giant", 64, 113.8), ("gigantic", 2, 2.23), ("gigantic", 64, 176.5),
    ],
)  # fmt: skip
def test_work_of_the_released_variants(name: str, frames: int, teraflops: float) -> None:
    assert window_flops(*case(name, frames)) / 1e12 == pytest.approx(teraflops, rel=0.03)


@torch.no_grad()
@pytest.mark.parametrize("name", ["base", "large", "giant", "gigantic"])
def test_formula_equals_counted_operations(name: str) -> None:
    config, facts = case(name, 4, 96)
    encoder = empty_encoder(named_variant(config.backbone)).requires_grad_(False)
    with FlopCounterMode(display=False) as counter:
        encoder(torch.empty(1, 3, 4, 96, 96, device="meta"))
    assert window_flops(config, facts) == counter.get_total_flops()


def test_timm_work_is_counted() -> None:
    config = PatchesConfig(
        backbone="timm:resnet50", checkpoint="random", fps=4.0, frames_per_window=2
    )
    flops = window_flops(config, backbone_facts(config))
    assert flops / 2 == pytest.approx(8.2e9, rel=0.02)  # 4.1 billion multiply-adds a frame


def test_an_hour_costs_its_windows_and_the_bytes_of_its_array() -> None:
    assert gpu_hours(312e12 * 0.3 * 3600) == pytest.approx(1.0)
    config, _ = case("giant")  # 8 fps, 64 frames: 450 windows an hour
    found = hourly_costs(config, (0, 2))
    pooled = np.zeros((3600 * 4, 4, 1408), np.float16)
    assert found["GB/h, 2 x 2"] == pytest.approx(pooled.nbytes / 1e9)
    assert found["GB/h, 24 x 24"] == pytest.approx(144 * pooled.nbytes / 1e9)
    assert found["h/h, H100"] == pytest.approx(989e12 * 0.3 * 3600 / (450 * 113.8e12), rel=0.03)
    plan = extraction_plan([(3600.0, None), (0.1, np.zeros((0, 2)))], case("giant", grid=2)[0])
    assert (plan.takes, plan.tokens, plan.windows) == (2, 14401, 451)
    assert plan.stored == pooled.nbytes * 14401 / 14400


def test_costs_are_a_table() -> None:
    plan = ["plan", "--per-hour"]
    found = CliRunner().invoke(app, [*plan, "vjepa2_1_vit_giant_384", "--crop", "256"])
    assert found.exit_code == 0
    header, _, line = found.stdout.splitlines()
    cells = dict(zip(header.split(" | "), line.split(" | "), strict=True))
    assert float(cells["GB/h, 16 x 16"]) == pytest.approx(3600 * 4 * 256 * 1408 * 2 / 1e9, rel=0.01)
    assert CliRunner().invoke(app, [*plan, "nothing"]).exit_code == 1


def test_the_plan_says_what_is_the_limit() -> None:
    """One A100 hour of work: an hour of decoding is slower than an A100, faster than an L4."""
    plan = ExtractionPlan(
        takes=1, hours=1, tokens=1, windows=1, flops=312e12 * 0.3 * 3600, stored=1.0
    )
    shown = [dict(plan.rows(1.0, hours))["limited by"] for hours in (0.1, 1.5, 9.0)]
    assert shown[:2] == ["encoding", "decoding with A100, H100"]
    assert all(gpu in shown[2] for gpu in PEAK_TFLOPS)
    assert "limited by" not in dict(plan.rows(1.0))


def test_decoding_is_measured_on_a_video(tmp_path: Path) -> None:
    assert decoding_share(write_film(tmp_path / "x.mp4", 0, 100), tiny_config()) > 0
