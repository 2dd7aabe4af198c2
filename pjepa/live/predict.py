"""Labels for whole unannotated videos: the same stack, offline.

Unlike a stream this works with any encoder and probe, also those that see the whole take.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pjepa.core.runs import label_spans, runs
from pjepa.core.tables import Classes
from pjepa.core.text import natural, sheet_cell
from pjepa.core.time import cut_steps, token_count
from pjepa.live.formats import Labelled, PredictedStep, write_config, write_format
from pjepa.live.models import Models, represented
from pjepa.live.outlook import FIELDS, of_step
from pjepa.live.steps import AS_SCORED, Cleaning, cleaned_labels
from pjepa.nn.prefetch import Prefetch, StalledError
from pjepa.patches.encode import (
    PATIENCE_S,
    Job,
    WindowBatch,
    decoded_batches,
    encoded_batch,
    patch_info,
)
from pjepa.report.figures import Strip, draw_strips
from pjepa.storage.reading import file_sha256, fingerprint, read_object
from pjepa.storage.writing import atomic_file, check_new_folder, write_csv, write_json
from pjepa.ui.console import InputError, Meter
from pjepa.video.files import check_name
from pjepa.video.index import VideoInfo, frame_index

TABLE, SCORES = "segments.csv", "scores"  # of all videos, and the folder of each one's tokens
OUTLOOK = "outlook"  # the folder of each one's next steps, progress and surprise
MADE_BY, NOTES = Path(".pjepa/made_by.json"), Path(".pjepa/videos")  # by what, which are done
COLUMNS = ("video", "start", "end", "label")
TABLE_COLUMNS = (*COLUMNS, "score")


@dataclass(frozen=True)
class Predicted:
    """One video's tokens: times [T], class probabilities [T, C], labels [T]; `fps` is its own."""

    video: str
    fps: float
    step_s: float
    times_s: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    outlook: np.ndarray  # rows of `pjepa.live.outlook` [T, 4]
    cuts: tuple[int, ...] = ()  # tokens before which the time stamps jump
    distance: float | None = None  # from the training tokens

    def steps(self, names: Sequence[str]) -> list[PredictedStep]:
        """Return the runs of equal labels, with the mean of their probability."""
        own = self.label_scores()
        recording = np.searchsorted(np.array(self.cuts), np.arange(len(own)), side="right")
        classes = self.scores.shape[1]
        spans = label_spans(self.labels + classes * recording, self.times_s, self.step_s)
        steps = []
        for number, (first, stop) in enumerate(zip(spans.first, spans.end, strict=True)):
            ahead = of_step(self.outlook[first:stop]).row(names)
            start, end = float(spans.begin_s[number]), float(spans.until_s[number])
            label = names[spans.labels[number] % classes]
            steps.append(PredictedStep(start, end, label, float(own[first:stop].mean()), ahead))
        return steps

    def label_scores(self) -> np.ndarray:
        """Return the probability [T] of every token's label."""
        return np.take_along_axis(self.scores, self.labels[:, None], axis=1)[:, 0]


@dataclass(frozen=True)
class PredictOutcome:
    """What became of the videos, by name."""

    notes: Mapping[str, Mapping[str, Any]]  # of those that are done
    failed: Mapping[str, str]  # why the others are not
    resumed: int  # done by an earlier run

    @property
    def steps(self) -> int:
        return sum(len(note["steps"]) for note in self.notes.values())


def predict_videos(
    models: Models,
    videos: Mapping[str, Path],
    out: Path,
    formats: Sequence[str] = (),
    cleaning: Cleaning = AS_SCORED,
) -> PredictOutcome:
    """Write the steps of every video as it is done; one that cannot be read stops no other.

    A name of `videos` is that of the video's files, below `out`.
    """
    version = open_folder(models, out, formats, cleaning)
    noted = notes(out)
    done: dict[str, dict[str, Any]] = {}
    failed, resumed = {}, 0
    for name, video in videos.items():
        try:
            digest = video_digest(video)
            if noted.get(name, {}).get("sha256") == digest:
                done[name], resumed = noted[name], resumed + 1
                continue
            file = name if name.endswith(video.suffix) else f"{name}{video.suffix}"
            result = predicted(models, video, file, cleaning)
        except (InputError, OSError) as error:  # of this video: errors of writing end the run
            failed[name] = str(error)
            continue
        steps = write_video(result, models.classes, version, out, name, formats)
        rows = [[step.start, step.end, step.label, step.score] for step in steps]
        about = {"video": result.video, "distance": result.distance, "sha256": digest}
        done[name] = noted[name] = {**about, "steps": rows}
        write_json(out / NOTES / f"{name}.json", done[name])
        write_table(out, noted)
    if resumed:  # it may have ended before the table was whole
        write_table(out, noted)
    return PredictOutcome(done, failed, resumed)


def open_folder(models: Models, out: Path, formats: Sequence[str], cleaning: Cleaning) -> str:
    """Begin or reopen the folder to write; return the version of the models."""
    rule, version = models.rule, model_version(models)
    tokens = rule.block if rule.found is None else rule.found.config.tokens
    made_by = {
        "model": version,
        "segments": f"{rule.kind} {tokens}",
        "formats": sorted(formats),
        **vars(cleaning),
    }
    if is_ours(out):
        before = read_object(out / MADE_BY)
        if changed := [name for name in made_by if made_by[name] != before.get(name)]:
            raise InputError(
                f"{out}: holds predictions with another {' and '.join(changed)}; name a new folder"
            )
        check_table(out)
    else:
        check_new_folder(out)
        write_json(out / MADE_BY, made_by)
    if "labelstudio" in formats:
        write_config(out, models.classes.names)
    return version


def is_ours(folder: Path) -> bool:
    """Return whether an earlier run wrote this folder."""
    return (folder / MADE_BY).is_file()


def notes(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the notes of all finished videos by name."""
    files = sorted((folder / NOTES).rglob("*.json"))
    names = [file.relative_to(folder / NOTES).as_posix() for file in files]
    return {
        name.removesuffix(".json"): read_object(file)
        for name, file in zip(names, files, strict=True)
    }


def video_digest(video: Path) -> str:
    """Return the content hash of a video, which tells whether it was replaced."""
    check_name(video)
    if not video.is_file():
        raise InputError(f"{video}: no such video")
    return file_sha256(video)


def table_rows(noted: Mapping[str, Mapping[str, Any]]) -> list[list[str]]:
    """Return one row per step of the finished videos, sorted by name."""
    videos = sorted(noted.values(), key=lambda note: natural(note["video"]))
    return [
        [*step_cells(note["video"], start, end, label), f"{score:.4f}"]
        for note in videos
        for start, end, label, score in note["steps"]
    ]


def step_cells(video: str, start: float, end: float, label: str) -> list[str]:
    """Return the cells under `COLUMNS`."""
    return [sheet_cell(video), f"{start:.3f}", f"{end:.3f}", sheet_cell(label)]


def write_table(out: Path, noted: Mapping[str, Mapping[str, Any]]) -> None:
    """Write one row per step in the format of the `folder` source, plus a score."""
    write_csv(out / TABLE, TABLE_COLUMNS, table_rows(noted))


def check_table(out: Path) -> None:
    """Raise if the table of an earlier run holds rows that it did not write."""
    table = out / TABLE
    if not table.exists():
        return
    with table.open(newline="", encoding="utf-8") as file:
        rows = set(map(tuple, csv.reader(file)))
    if rows - set(map(tuple, [TABLE_COLUMNS, *table_rows(notes(out))])):
        raise InputError(f"{table}: was changed by hand and would be lost; name a new folder")


def write_video(
    result: Predicted,
    classes: Classes,
    version: str,
    out: Path,
    name: str,
    formats: Sequence[str],
) -> list[PredictedStep]:
    """Write the files of one video: scores, a timeline and other formats; return its steps."""
    steps = result.steps(classes.names)
    (out / name).parent.mkdir(parents=True, exist_ok=True)
    strip, title = Strip("prediction", result.labels), " ".join(result.video.split())
    draw_strips([strip], result.times_s, result.step_s, classes, title, out / f"{name}.png")
    for kind in formats:
        write_format(kind, Labelled(result.video, result.fps, steps, version), out, name)
    write_scores(out / SCORES / f"{name}.parquet", result, classes)
    if any(step.outlook for step in steps):
        rows = [
            [
                *step_cells(result.video, step.start, step.end, step.label),
                *(sheet_cell(str(step.outlook.get(field, ""))) for field in FIELDS),
            ]
            for step in steps
        ]
        write_csv(out / OUTLOOK / f"{name}.csv", [*COLUMNS, *FIELDS], rows)
    return steps


def model_version(models: Models) -> str:
    """Return the probe's cell and a hash of the weights, which identify predictions later."""
    return f"{models.options.cell.resolve().name} {fingerprint(models.hashes)}"


def predicted(
    models: Models, video: Path, name: str = "", cleaning: Cleaning = AS_SCORED
) -> Predicted:
    """Return the class probabilities and labels of one video's tokens."""
    info = frame_index(video).info
    per_step = models.pooler.facts.per_step
    tokens = video_tokens(models, video, info)
    rate = models.patches.tokens_fps * per_step
    cuts = tuple(cut_steps(info.jumps_s, rate))
    features, segments = represented(models, tokens, video.name, info.jumps_s)
    scores = models.probe.predict(features, segments)
    labels = cleaned_labels(scores, 1 / rate, cleaning, cuts)
    times = np.arange(len(tokens)) / rate
    distance = None if models.familiar is None else models.familiar.distance(tokens)
    lengths = runs(segments)[1].tolist()
    outlook = models.outlook.whole(tokens, features, lengths, 1 / rate)
    return Predicted(
        name or video.name, info.fps, 1 / rate, times, scores, labels, outlook, cuts, distance
    )


def video_tokens(models: Models, video: Path, info: VideoInfo) -> np.ndarray:
    """Return tokens [T, D] of a video file, pooled as windows arrive.

    No window reaches across a jump of the time stamps.
    """
    job = Job(video.name, str(video), video, info.duration_s, None, video)  # nothing is written
    patches = patch_info(models.patches, models.backbone.facts)
    batches = decoded_batches(job, models.backbone, models.patches, patches)
    steps = token_count(info.duration_s, models.patches.tokens_fps)
    cuts = cut_steps(info.jumps_s, models.patches.tokens_fps)
    try:
        with Meter(video.name, steps, "step") as meter, Prefetch(batches, 1, PATIENCE_S) as ready:
            tokens = list(_pooled(models, _encoded(models, iter(ready), meter), cuts))
    except StalledError:
        raise InputError(f"{video}: the decoder hangs; re-encode this video") from None
    return np.concatenate(tokens)


def _encoded(models: Models, batches: Iterator[WindowBatch], meter: Meter) -> Iterator[np.ndarray]:
    """Yield the patches [cells, width] of every step in order."""
    for batch in batches:
        features = encoded_batch(models.backbone, batch.video, models.patches).array()
        for window, steps in zip(batch.windows, features, strict=True):
            yield from steps[window.place : window.place + window.tokens]
            meter.advance(window.tokens)


def _pooled(
    models: Models, steps: Iterator[np.ndarray], cuts: Sequence[int]
) -> Iterator[np.ndarray]:
    """Yield tokens of whole pooler windows.

    The last one of the take or before a cut may be shorter.
    """
    done, ahead = 0, [*cuts, sys.maxsize]
    while waiting := list(islice(steps, min(models.pooled, ahead[0] - done))):
        yield models.pooler.window_tokens(np.stack(waiting))
        done += len(waiting)
        ahead = ahead[done == ahead[0] :]


def write_scores(path: Path, result: Predicted, classes: Classes) -> None:
    """Write one row per token: its probability of every class, in the order of `classes`."""
    count = len(classes.names)
    about = json.dumps({"names": list(classes.names), "background": classes.background})
    flat = pa.array(result.scores.astype(np.float32).ravel(), pa.float32())
    columns = {
        "video": pa.array([result.video] * len(result.times_s), pa.string()),
        "time_s": pa.array(result.times_s, pa.float64()),
        "prediction": pa.array(result.labels.astype(np.int32)),
        "score": pa.array(result.label_scores().astype(np.float32)),
        "scores": pa.FixedSizeListArray.from_arrays(flat, count),
    }
    table = pa.table(columns).replace_schema_metadata({b"classes": about.encode()})
    with atomic_file(path) as partial:
        pq.write_table(table, partial)
