"""A contact sheet of the demo world: `python -m benchmarks.demo_sheet --out docs/images/demo.png`.

The middle frame of the first segments of a few takes, with the step's name. No reference: it is a
picture, made from the videos that `dvc repro takes` renders.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import matplotlib
import numpy as np
import typer

from pjepa.core.tables import read_classes, read_segments, read_videos
from pjepa.tools import paths
from pjepa.video.reader import open_video

matplotlib.use("Agg")


def main(
    out: Annotated[Path, typer.Option(help="The PNG to write.")],
    takes: Annotated[int, typer.Option(help="Rows.", min=1)] = 3,
    columns: Annotated[int, typer.Option(help="Segments per row.", min=1)] = 9,
) -> None:
    """Draw the sheet."""
    from matplotlib import pyplot

    names = read_classes(paths.CLASSES).names
    segments = read_segments(paths.SEGMENTS_TABLE)
    figure, axes = pyplot.subplots(takes, columns, figsize=(1.35 * columns, 1.6 * takes))
    for row, video in enumerate(read_videos(paths.VIDEOS_TABLE)[:takes]):
        part = segments[segments["take_id"] == video.take_id].head(columns)
        middles = ((part["start_s"] + part["end_s"]) / 2).to_numpy(np.float64)
        with open_video(video.path) as reader:
            frames = reader.frames(middles)
        for column, (frame, label) in enumerate(zip(frames, part["label"], strict=True)):
            axis = axes[row][column]
            axis.imshow(frame)
            axis.set_title(f"{middles[column]:.0f} s: {names[label]}", fontsize=6.5)
            axis.axis("off")
    figure.tight_layout(pad=0.3)
    figure.savefig(out, dpi=85, metadata={"Software": None})


if __name__ == "__main__":
    typer.run(main)
