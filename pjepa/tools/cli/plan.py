"""`pjepa plan`: what features for videos will cost."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from pjepa.core.section import read_section
from pjepa.patches.config import PatchesConfig, tubelet_of
from pjepa.tools import paths
from pjepa.tools.cli.app import FEATURES, app, one_line_errors
from pjepa.tools.cli.extract_options import (
    BACKBONE,
    BackboneOption,
    CropOption,
    FpsOption,
    FramesOption,
    GridOption,
    Inputs,
    ModelOption,
    ModeOption,
    PoolOption,
    StrideOption,
    named_config,
    refuse_idle_options,
    spoken_as_options,
)
from pjepa.ui.errors import InputError
from pjepa.ui.progress import say


@app.command(rich_help_panel=FEATURES)
def plan(
    context: typer.Context,
    inputs: Inputs = None,
    backbone: BackboneOption = BACKBONE,
    model: ModelOption = None,
    fps: FpsOption = 4.0,
    pool: PoolOption = "mean",
    grid: GridOption = 0,
    frames_per_window: FramesOption = 64,
    window_mode: ModeOption = "block",
    window_stride: StrideOption = 1,
    crop: CropOption = 0,
    per_hour: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BACKBONE",
            help="Instead, print GB per hour of video, and hours of video per GPU hour.",
        ),
    ] = None,
) -> None:
    """Estimate tokens, disk space and GPU hours. Exit code 1 if the disk is too small.

    With videos: the cost of `pjepa extract` with the same options. Without:
    the cost of the stage `patches` as params.yaml sets it. Also says whether
    decoding on this machine (`machine.workers` threads) or a GPU is the limit.
    `--per-hour released` shows the released V-JEPA 2.1 variants side by side.
    """
    if per_hour:
        with one_line_errors():
            typer.echo(hourly_table(per_hour, fps, crop))
        return
    from pjepa.core.resume import work_root
    from pjepa.patches.plan import check_disk, extraction_plan, free_bytes
    from pjepa.ui.terminal import print_table

    with one_line_errors():
        refuse_idle_options(context)
        config = planned_config(context, model)
        found = extraction_plan(planned_takes(inputs or []), config)
        what = "`pjepa extract`" if inputs else "stage `patches`"
        title = f"{what}: {config.backbone}, {config.fps:g} frames/s, {config.window_mode} windows"
        decoding = decoding_hours(inputs or [], found.hours, config)
        print_table(title, ["", ""], found.rows(free_bytes(work_root()), decoding))
        check_disk(found.stored, work_root())


def planned_config(context: typer.Context, model: Path | None) -> PatchesConfig:
    """Return the settings of `extract` for named videos; without any, those of params.yaml."""
    if not context.params["inputs"]:
        return read_section(PatchesConfig, "patches")
    if model is None:
        with spoken_as_options(context):
            return named_config(context.params)
    from pjepa.live.models import Wanted, live_windows
    from pjepa.pooler.models import load_pooler

    trained = load_pooler(model / "pooler", "cpu").facts
    return live_windows(trained.patches, trained.window, Wanted(model, as_trained=True))[0]


def hourly_table(backbones: list[str], tokens_fps: float, crop: int) -> str:
    """Return what an hour of video costs with each backbone, as a Markdown table."""
    from pjepa.patches.cost import hourly_costs
    from pjepa.patches.vjepa21 import VARIANTS
    from pjepa.report.numbers.text import markdown_table

    released = [name for name, variant in VARIANTS.items() if variant.file]
    rows = []
    for name in released if backbones == ["released"] else backbones:
        given = {"backbone": name, "fps": tokens_fps * tubelet_of(name), "crop": crop}
        config = read_section(PatchesConfig, "patches", {"patches": given})
        rows.append((name, hourly_costs(config, grids=(0, 4, 1))))
    lines = [[name, *(_three_digits(value) for value in found.values())] for name, found in rows]
    return markdown_table(["backbone", *rows[0][1]], lines)


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def decoding_hours(inputs: list[Path], hours: float, config: PatchesConfig) -> float | None:
    """Return hours to read so many hours of video with `machine.workers` threads of this machine.

    Measured on one video; None if there is none here that can be read.
    """
    from pjepa.core.tables import read_videos
    from pjepa.patches.plan import decoding_share
    from pjepa.tools.own_videos import own_videos

    videos = own_videos(inputs) if inputs else read_videos(paths.VIDEOS_TABLE)
    for video in videos:
        with suppress(InputError, OSError):
            return hours * decoding_share(video.path, config) / config.workers
    return None


def planned_takes(inputs: list[Path]) -> list[tuple[float, Any]]:
    """Return seconds and segments of every take, of the given videos or of the project."""
    from pjepa.core.tables import read_boundaries, read_videos
    from pjepa.tools.own_videos import own_videos
    from pjepa.video.index import expected_seconds

    if inputs:
        known = []
        for video in own_videos(inputs):
            try:
                seconds = expected_seconds(video.path)
            except InputError as error:
                say(f"plan: left out: {error}")
                continue
            known.append((seconds, None))
        if not known:
            raise InputError("plan: no video can be read, see above")
        return known
    boundaries = read_boundaries(paths.BOUNDARIES_TABLE)
    return [(r.duration_s, boundaries.get(r.take_id)) for r in read_videos(paths.VIDEOS_TABLE)]
