"""`pjepa plan`: what features for videos will cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pjepa import paths
from pjepa.cli.app import app, one_line_errors
from pjepa.config.patches import PatchesConfig
from pjepa.config.section import read_section
from pjepa.errors import InputError
from pjepa.progress import say


@app.command()
def plan(
    inputs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="VIDEO|FOLDER", help="Without any: the takes of this project."),
    ] = None,
) -> None:
    """Print tokens, disk and GPU hours for params.yaml; exit code 1 if the disk is too small."""
    from pjepa.backbones.plan import check_disk, extraction_plan, free_bytes
    from pjepa.report.terminal import print_table
    from pjepa.work import work_root

    with one_line_errors():
        config = read_section(PatchesConfig, "patches")
        found = extraction_plan(planned_takes(inputs or []), config)
        title = f"patches: {config.backbone}, {config.fps:g} frames/s, {config.window_mode} windows"
        print_table(title, ["", ""], found.rows(free_bytes(work_root())))
        check_disk(found.stored, work_root())


def planned_takes(inputs: list[Path]) -> list[tuple[float, Any]]:
    """Seconds and segments of every take: of the videos given, or of the project's tables."""
    from pjepa.features.own_videos import own_videos
    from pjepa.takes.manifest import read_boundaries, read_videos
    from pjepa.video.index import frame_index, header_seconds

    if inputs:
        known = []
        for video in own_videos(inputs):
            try:
                seconds = header_seconds(video.path) or frame_index(video.path).info.duration_s
            except InputError as error:
                say(f"plan: left out: {error}")
                continue
            known.append((seconds, None))
        return known
    boundaries = read_boundaries(paths.BOUNDARIES_TABLE)
    return [(r.duration_s, boundaries.get(r.take_id)) for r in read_videos(paths.VIDEOS_TABLE)]
