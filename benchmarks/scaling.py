"""What 10, 1,000 and 100,000 hours of video cost: `python -m benchmarks.scaling`.

Arithmetic from the sizes of the models, printed as the tables of docs/scaling.md; nothing is timed
and there is no reference. GPU hours assume the utilisation of `pjepa.patches.cost`.

    work of an epoch, per token = 2 P (teacher) + 6 P (1 - p_m) (student) + 6 Q (predictor)
                                  + attention: 2 T d per layer forward, thrice with backward
    P, Q: parameters of encoder and predictor blocks; T: tokens of a take
"""

from __future__ import annotations

from typing import Annotated

import typer

from pjepa.core.text import markdown_table
from pjepa.patches.config import PatchesConfig
from pjepa.patches.cost import extraction_plan, gpu_hours, sizes_alone
from pjepa.pretrain.config import PjepaConfig

HOURS = (10, 1_000, 100_000)
BACKBONES = ("vjepa2_1_vit_large_384", "vjepa2_1_vit_giant_384")
GRIDS = {"24 x 24": 0, "4 x 4": 4, "1 x 1": 1}
HALF = 2  # bytes of a stored value
MINUTES = 30  # of a take


def pretraining_flops(config: PjepaConfig, width: int, tokens: float, take: float) -> float:
    """Return the work of one epoch over that many tokens in takes of `take` tokens."""
    block = width**2 * (4 + 2 * config.mlp_ratio)
    encoder, predictor = config.depth * block, config.predictor_depth * block
    seen = 1 - config.mask_ratio
    linear = 2 * encoder + 6 * encoder * seen + 6 * predictor
    pairs = 2 * take * width  # causal: half of all pairs, scores and values
    attention = pairs * (config.depth * (1 + 3 * seen**2) + 3 * config.predictor_depth)
    return tokens * (linear + attention)


def storage_table(fps: float) -> str:
    """Return GB of patches by grid, of the token stream and of one representation."""
    rows = []
    for name in BACKBONES:
        width = sizes_alone(PatchesConfig(backbone=name)).width
        for hours in HOURS:
            row = [name.removeprefix("vjepa2_1_"), f"{hours:,}"]
            for grid in GRIDS.values():
                hour = extraction_plan([(3600.0, None)], PatchesConfig(backbone=name, grid=grid))
                row.append(size(hours * hour.stored))
            row.append(size(hours * 3600 * fps * width * HALF))
            rows.append(row)
    header = ["backbone", "hours of video", *(f"patches {name}" for name in GRIDS)]
    return markdown_table([*header, "tokens (and each representation)"], rows)


def compute_table(fps: float, gpu: str, epochs: int) -> str:
    """Return GPU hours of extraction and of pretraining."""
    pjepa, rows = PjepaConfig(), []
    for name in BACKBONES:
        config = PatchesConfig(backbone=name)
        facts = sizes_alone(config)
        pace = 1 / gpu_hours(extraction_plan([(3600.0, None)], config).flops, gpu)
        for hours in HOURS:
            tokens = hours * 3600 * fps
            epoch = gpu_hours(
                pretraining_flops(pjepa, facts.width, tokens, MINUTES * 60 * fps), gpu
            )
            row = [name.removeprefix("vjepa2_1_"), f"{hours:,}", f"{tokens:.3g}"]
            rows.append([*row, f"{hours / pace:,.1f}", f"{epoch:,.3g}", f"{epochs * epoch:,.3g}"])
    header = ["backbone", "hours of video", "tokens", f"extraction, {gpu} hours"]
    return markdown_table([*header, "one epoch", f"{epochs} epochs"], rows)


def size(count: float) -> str:
    """Return the size as readable text."""
    for unit, step in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9)):
        if count >= step:
            return f"{count / step:.3g} {unit}"
    return f"{count / 1e6:.3g} MB"


def main(
    gpu: Annotated[str, typer.Option(help="L4, RTX 4090, A100 or H100.")] = "A100",
    epochs: Annotated[int, typer.Option(min=1)] = PjepaConfig().epochs,
    fps: Annotated[float, typer.Option(help="Tokens per second.")] = 4.0,
) -> None:
    """Print both tables as Markdown."""
    print(storage_table(fps))
    print()
    print(compute_table(fps, gpu, epochs))


if __name__ == "__main__":
    typer.run(main)
