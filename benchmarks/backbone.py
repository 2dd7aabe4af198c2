"""The V-JEPA 2.1 encoder: `python -m benchmarks.backbone [--json FILE] [--device cuda]`.

The reference is the same encoder, with the same weights, written plainly in eager torch: torch's
fused attention, and rotation angles computed anew for q and for k in every layer, as the published
code does. Both are measured alternately, each in a process of its own. On the CPU times
are CPU seconds at one thread; on CUDA ours is bf16 autocast and compiled, the reference bf16
autocast, and times are wall seconds. Both must give the same features, or there is no table.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor
from torch.nn import functional as F

from benchmarks.workers import Table, Work, Worker, alternately, row
from pjepa.patches.backbone import VJEPAWindows, load_backbone
from pjepa.patches.config import PatchesConfig
from pjepa.patches.vjepa21 import VJEPA21Encoder, grid_of, token_positions


@dataclass(frozen=True)
class Case:
    """One window."""

    backbone: str
    frames: int
    crop: int


CASES = {
    "ViT-B, 16 frames of 256 px": Case("vjepa2_1_vit_base_384", 16, 256),
    "ViT-B, 8 frames of 384 px": Case("vjepa2_1_vit_base_384", 8, 384),
    "ViT-L, 8 frames of 256 px": Case("vjepa2_1_vit_large_384", 8, 256),
}
CUDA_CASES = {
    "ViT-B, 64 frames of 384 px": Case("vjepa2_1_vit_base_384", 64, 384),
    "ViT-g, 64 frames of 256 px": Case("vjepa2_1_vit_giant_384", 64, 256),
}


def plain_angles(video: Tensor, width: int) -> Tensor:
    """Return angles [N, width] of one layer: a third of the channels per axis, each repeated."""
    part = 2 * ((width // 3) // 2)
    frequencies = 10000 ** (-torch.arange(part // 2, device=video.device) / (part / 2))
    axes = [p[:, None] * frequencies for p in token_positions(grid_of(video), video.device)]
    angles = torch.cat([a.repeat_interleave(2, dim=1) for a in axes], dim=1)
    return F.pad(angles, (0, width - angles.shape[1]))


def plain_rotate(x: Tensor, angles: Tensor) -> Tensor:
    turned = torch.stack([-x[..., 1::2], x[..., 0::2]], dim=-1).flatten(-2)
    return (x * angles.cos() + turned * angles.sin()).to(x.dtype)


def plain_block(block: Any, x: Tensor, video: Tensor) -> Tensor:
    """Return the output of one layer, spelled out."""
    batch, tokens, width = x.shape
    heads = block.attn.heads
    qkv = block.attn.qkv(block.norm1(x)).reshape(batch, tokens, 3, heads, width // heads)
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    q = plain_rotate(q, plain_angles(video, width // heads))
    k = plain_rotate(k, plain_angles(video, width // heads))
    out = F.scaled_dot_product_attention(q, k, v)
    x = x + block.attn.proj(out.transpose(1, 2).reshape(batch, tokens, width))
    return x + block.mlp.fc2(F.gelu(block.mlp.fc1(block.norm2(x))))


def plain_features(encoder: VJEPA21Encoder, video: Tensor) -> Tensor:
    """Return the features [B, N, D] of the plain version."""
    x = encoder.embed(video)
    for block in encoder.blocks:
        x = plain_block(block, x, video)
    features: Tensor = encoder.norms_block[-1](x)
    return features


def work_of(kind: str, case: Case, device: str) -> Work:
    """Encode one window; return (wall seconds, a few of the features)."""
    fast = device != "cpu"
    config = PatchesConfig(
        backbone=case.backbone, checkpoint="random", crop=case.crop, device=device,
        frames_per_window=case.frames, precision="bf16" if fast else "fp32", compile=fast,
    )  # fmt: skip
    backbone = load_backbone(config)
    assert isinstance(backbone, VJEPAWindows)
    generator = torch.Generator().manual_seed(0)
    video = torch.randn(1, 3, case.frames, case.crop, case.crop, generator=generator).to(device)

    @torch.inference_mode()
    def work() -> tuple[float, Tensor]:
        started = time.perf_counter()
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=fast):
            found = (
                backbone.encoded(video).flatten(1, 2)
                if kind == "ours"
                else plain_features(backbone.model, video)
            )
        shown = found[0, ::97, ::7].float().cpu()  # waits for the device
        return time.perf_counter() - started, shown.clone()

    return work


def measured(case: Case, device: str, rounds: int) -> dict[str, dict[str, Any]]:
    """Return times of both versions; refuse to compare times of different features."""
    workers = {kind: Worker(work_of, kind, case, device) for kind in ("ours", "plain")}
    found = alternately(workers, rounds)
    ours, plain = (found[kind]["result"][1] for kind in ("ours", "plain"))
    close = 1e-4 if device == "cpu" else 0.2
    if float((ours - plain).abs().max()) > close:
        raise SystemExit(f"the two versions differ by {float((ours - plain).abs().max()):.2g}")
    return found


def main(
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the table.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Measurements per case.")] = 3,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Print ours beside the plain version."""
    table = Table()
    for name, case in (CASES if device == "cpu" else CUDA_CASES).items():
        found = measured(case, device, rounds)
        times = [found[k]["s"] if device == "cpu" else found[k]["result"][0] for k in found]
        table.add(name, row(times[0], times[1], "s"))
        if device == "cpu":
            table.add(f"{name}, memory", row(found["ours"]["MB"], found["plain"]["MB"], "MB"))
    table.save(json_file)


if __name__ == "__main__":
    typer.run(main)
