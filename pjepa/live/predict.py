"""Labels for whole videos that nobody annotated: the same stack, offline.

Unlike a stream this takes any encoder and any probe, also those that see the whole take.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pjepa.backbones.encode import (
    PATIENCE_S,
    Batch,
    Job,
    decoded_batches,
    encoded_batch,
    patch_info,
)
from pjepa.errors import InputError
from pjepa.live.features import represented
from pjepa.live.formats import Labelled, Step, write_format
from pjepa.live.models import Models
from pjepa.live.targets import check_new_folder
from pjepa.prefetch import Prefetch, StalledError
from pjepa.probes.spans import label_spans
from pjepa.progress import Meter
from pjepa.report.timelines import Strip, draw_strips
from pjepa.takes.manifest import Classes
from pjepa.video.index import frame_index
from pjepa.video.sampling import token_count
from pjepa.work import whole_folder


@dataclass(frozen=True)
class Predicted:
    """One video's tokens: times [T] and class probabilities [T, C]; `fps` is the video's."""

    video: str
    fps: float
    step_s: float
    times_s: np.ndarray
    scores: np.ndarray

    def labelled(self, classes: Classes) -> Labelled:
        """Runs of the most likely class, with the mean of its probability."""
        labels = self.scores.argmax(axis=1)
        best = self.scores.max(axis=1)
        spans = label_spans(labels, self.times_s, self.step_s)
        columns = (spans.begin_s, spans.until_s, spans.labels, spans.first, spans.end)
        steps = [
            Step(float(start), float(end), classes.names[label], float(best[first:stop].mean()))
            for start, end, label, first, stop in zip(*columns, strict=True)
        ]
        return Labelled(self.video, self.fps, steps)


def predict_videos(
    models: Models, videos: Sequence[Path], out: Path, formats: Sequence[str] = ()
) -> list[Predicted]:
    """Writes segments.csv, scores.parquet, a timeline and other formats for every video."""
    check_new_folder(out)
    stems = video_stems(videos)
    with whole_folder(out) as folder:
        found = []
        for video in videos:
            found.append(predicted(models, video))
            labelled = found[-1].labelled(models.classes)
            stem = stems[video]
            draw_timeline(found[-1], models.classes, folder / f"{stem}.png")
            for name in formats:
                write_format(name, labelled, folder, stem)
        write_segments(folder / "segments.csv", [x.labelled(models.classes) for x in found])
        write_scores(folder / "scores.parquet", found, models.classes)
    return found


def video_stems(videos: Sequence[Path]) -> dict[Path, str]:
    """A file name for each video's outputs; two of one name are refused."""
    stems = {video: video.stem for video in videos}
    twice = [stem for stem in stems.values() if list(stems.values()).count(stem) > 1]
    if twice or len(stems) < len(videos):
        raise InputError(
            f"several videos are called {twice[0] if twice else videos[0].stem}; run them one by "
            "one into folders of their own"
        )
    return stems


def predicted(models: Models, video: Path) -> Predicted:
    """Class probabilities of one video's tokens."""
    tokens, fps = video_tokens(models, video)
    rate = models.patches.tokens_fps * models.pooler.facts.per_step
    features, segments = represented(models, tokens, video.name)
    scores = models.probe.predict(features, segments)
    return Predicted(video.name, fps, 1 / rate, np.arange(len(tokens)) / rate, scores)


def video_tokens(models: Models, video: Path) -> tuple[np.ndarray, float]:
    """Tokens [T, D] of a video file, pooled as windows arrive, and its frame rate."""
    info = frame_index(video).info
    job = Job(video.name, str(video), video, info.duration_s, None, video)  # nothing is written
    patches = patch_info(models.patches, models.backbone.facts)
    batches = decoded_batches(job, models.backbone, models.patches, patches)
    steps = token_count(info.duration_s, models.patches.tokens_fps)
    try:
        with Meter(video.name, steps, "step") as meter, Prefetch(batches, 1, PATIENCE_S) as ready:
            found = list(_pooled(models, _encoded(models, iter(ready), meter)))
    except StalledError:
        raise InputError(f"{video}: the decoder hangs; re-encode this video") from None
    return np.concatenate(found), info.fps


def _encoded(models: Models, batches: Iterator[Batch], meter: Meter) -> Iterator[np.ndarray]:
    """Patches [cells, width] of every step in order."""
    for batch in batches:
        features = encoded_batch(models.backbone, batch.video, models.patches).array()
        for window, steps in zip(batch.windows, features, strict=True):
            yield from steps[window.place : window.place + window.tokens]
            meter.advance(window.tokens)


def _pooled(models: Models, steps: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """Tokens of whole pooler windows; the last one may be shorter."""
    while waiting := list(islice(steps, models.pooled)):
        yield models.pooler.window_tokens(np.stack(waiting))


def write_segments(path: Path, found: Sequence[Labelled]) -> None:
    """One row per step, as the `folder` source reads it; the score is ours alone."""
    with path.open("w", newline="", encoding="utf-8") as file:
        sheet = csv.writer(file, lineterminator="\n")
        sheet.writerow(["video", "start", "end", "label", "score"])
        for labelled in found:
            for step in labelled.steps:
                times = f"{step.start:.3f}", f"{step.end:.3f}"
                sheet.writerow([labelled.video, *times, step.label, f"{step.score:.4f}"])


def write_scores(path: Path, found: Sequence[Predicted], classes: Classes) -> None:
    """One row per token: its probability of every class, in the order of `classes`."""
    count = len(classes.names)
    about = json.dumps({"names": list(classes.names), "background": classes.background})
    schema = pa.schema(
        [
            ("video", pa.string()),
            ("time_s", pa.float64()),
            ("prediction", pa.int32()),
            ("score", pa.float32()),
            ("scores", pa.list_(pa.float32(), count)),
        ],
        metadata={b"classes": about.encode()},
    )
    with pq.ParquetWriter(path, schema) as table:
        for one in found:
            flat = pa.array(one.scores.astype(np.float32).ravel(), pa.float32())
            columns = [
                pa.array([one.video] * len(one.times_s), pa.string()),
                pa.array(one.times_s, pa.float64()),
                pa.array(one.scores.argmax(axis=1).astype(np.int32)),
                pa.array(one.scores.max(axis=1).astype(np.float32)),
                pa.FixedSizeListArray.from_arrays(flat, count),
            ]
            table.write_table(pa.Table.from_arrays(columns, schema=schema))


def draw_timeline(found: Predicted, classes: Classes, path: Path) -> None:
    """The predicted steps of one video as a coloured strip."""
    strip = Strip("prediction", found.scores.argmax(axis=1))
    draw_strips([strip], found.times_s, found.step_s, classes, " ".join(found.video.split()), path)
