"""The README's picture: `python -m benchmarks.take_picture --out docs/images/take.png`.

Frames of a test take, and below them what was done, what a linear probe reads from the raw tokens,
and what it reads from P-JEPA's. The take is the one at the median of the gain, not the best. No
reference: it draws what `dvc repro` wrote.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import matplotlib
import numpy as np
import pandas as pd
import typer

from pjepa.core.runs import label_spans
from pjepa.core.tables import Classes, read_classes, read_videos
from pjepa.report.palette import class_look
from pjepa.tools import paths
from pjepa.video.reader import open_video

matplotlib.use("Agg")
FRAMES = 8


def main(out: Annotated[Path, typer.Option(help="The PNG to write.")]) -> None:
    """Draw the picture."""
    from matplotlib import pyplot

    found = {name: predictions(name) for name in ("raw", "pjepa")}
    take = median_take(found["raw"], found["pjepa"])
    rows = {name: table[table["take_id"] == take] for name, table in found.items()}
    accuracy = {name: hits(table).mean() for name, table in rows.items()}
    strips = [
        ("truth", rows["raw"]["label"]),
        (f"raw tokens: {accuracy['raw']:.0%} right", rows["raw"]["prediction"]),
        (f"P-JEPA: {accuracy['pjepa']:.0%} right", rows["pjepa"]["prediction"]),
    ]
    times = rows["raw"]["time_s"].to_numpy()
    figure, axes = pyplot.subplots(
        2, 1, figsize=(10, 3.2), gridspec_kw={"height_ratios": (1.25, 1.6)}
    )
    draw_frames(axes[0], take, times)
    draw_strips(axes[1], strips, times, read_classes(paths.CLASSES))
    figure.tight_layout(pad=0.4)
    figure.savefig(out, dpi=110, metadata={"Software": None})
    typer.echo(f"{out}: {take}, " + ", ".join(f"{n} {100 * v:.1f}" for n, v in accuracy.items()))


def predictions(name: str) -> pd.DataFrame:
    """Return what the linear probe said for every token of the reported takes."""
    return pd.read_parquet(paths.cell("linear", name) / "predictions.parquet")


def hits(table: pd.DataFrame) -> pd.Series:
    """Return whether each known token was labelled rightly."""
    known = table[table["label"] >= 0]
    return known["label"] == known["prediction"]


def median_take(raw: pd.DataFrame, pjepa: pd.DataFrame) -> str:
    """Return the take whose gain is in the middle of all."""
    gain = {
        take: hits(part).mean() - hits(raw[raw["take_id"] == take]).mean()
        for take, part in pjepa.groupby("take_id")
    }
    return str(sorted(gain, key=lambda take: gain[take])[len(gain) // 2])


def draw_frames(axis: Any, take: str, times: np.ndarray) -> None:
    """Put frames at equal distances above the strips."""
    video = next(row for row in read_videos(paths.VIDEOS_TABLE) if row.take_id == take)
    middles = times[0] + (np.arange(FRAMES) + 0.5) * (times[-1] - times[0]) / FRAMES
    with open_video(video.path) as reader:
        frames = reader.frames(middles)
    axis.imshow(np.concatenate(list(frames), axis=1))
    axis.axis("off")


def draw_strips(
    axis: Any, strips: list[tuple[str, pd.Series]], times: np.ndarray, classes: Classes
) -> None:
    """Draw one bar per row, coloured by class, named where the name fits."""
    step = float(np.median(np.diff(times)))
    for place, (_, labels) in enumerate(strips):
        spans = label_spans(labels.to_numpy(np.int64), times, step)
        for label, begin, until in zip(spans.labels, spans.begin_s, spans.until_s, strict=True):
            look = class_look(int(label), classes.background)
            axis.barh(-place, until - begin, 0.8, begin, color=look.color, hatch=look.pattern,
                      edgecolor=look.ink, linewidth=0)  # fmt: skip
            if until - begin > 0.055 * (times[-1] - times[0]) and label >= 0:
                name = classes.names[label].replace(" ", "\n")
                box = {"facecolor": "white", "alpha": 0.65, "pad": 0.6, "lw": 0}
                axis.text((begin + until) / 2, -place, name, ha="center", va="center",
                          fontsize=6.5, bbox=box)  # fmt: skip
    axis.set_yticks([-place for place in range(len(strips))], [name for name, _ in strips])
    axis.set_xlim(times[0], times[-1] + step)
    axis.set_xlabel("seconds", fontsize=8)
    axis.tick_params(labelsize=8)
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)


if __name__ == "__main__":
    typer.run(main)
