"""Labels for whole unannotated videos: the same stack, offline.

Unlike a stream this works with any encoder and probe, also those that see the whole take.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
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
from pjepa.live.outlook import OutlookRow, of_step, write_outlook
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
from pjepa.storage.reading import content_sha256, file_sha256, fingerprint, read_object
from pjepa.storage.writing import atomic_file, check_new_folder, write_json
from pjepa.ui.console import InputError, Meter
from pjepa.video.files import check_name
from pjepa.video.index import VideoInfo, frame_index

# The folder that `pjepa predict` writes: which videos are done, and by what.

WORK, VIDEOS = ".pjepa", "videos"


def is_ours(folder: Path) -> bool:
    """Return whether an earlier run wrote this folder."""
    return _made_by(folder).is_file()


def begin_folder(folder: Path, made_by: Mapping[str, Any]) -> None:
    """Note what this folder is made by; raise if it was something else."""
    if not is_ours(folder):
        write_json(_made_by(folder), dict(made_by))
        return
    before = read_object(_made_by(folder))
    changed = [name for name in made_by if made_by[name] != before.get(name)]
    if changed:
        raise InputError(
            f"{folder}: holds predictions with another {' and '.join(changed)}; name a new folder"
        )


def finished(folder: Path, name: str, digest: str) -> dict[str, Any] | None:
    """Return the note of a video that is done; None if it is not, or the file is another now."""
    file = _note(folder, name)
    note = dict(read_object(file)) if file.is_file() else {}
    return note if note.get("sha256") == digest else None


def finish(folder: Path, name: str, note: Mapping[str, Any]) -> None:
    """Note that a video's files are written."""
    write_json(_note(folder, name), dict(note))


def notes(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the notes of all finished videos by name."""
    place = folder / WORK / VIDEOS
    files = sorted(place.rglob("*.json"))
    return {f.relative_to(place).as_posix().removesuffix(".json"): read_object(f) for f in files}


def _made_by(folder: Path) -> Path:
    return folder / WORK / "made_by.json"


def _note(folder: Path, name: str) -> Path:
    return folder / WORK / VIDEOS / f"{name}.json"


TABLE, SCORES = "segments.csv", "scores"  # of all videos, and the folder of each one's tokens
OUTLOOK = "outlook"  # the folder of each one's next steps, progress and surprise


@dataclass(frozen=True)
class Predicted:
    """One video's tokens: times [T], class probabilities [T, C], labels [T]; `fps` is its own."""

    video: str
    fps: float
    step_s: float
    times_s: np.ndarray
    scores: np.ndarray
    labels: np.ndarray
    cuts: tuple[int, ...] = ()  # tokens before which the time stamps jump
    distance: float | None = None  # from the training tokens
    outlook: np.ndarray | None = None  # rows of `pjepa.live.outlook` [T, 4]

    def labelled(self, classes: Classes, model: str = "pjepa") -> Labelled:
        """Return the runs of equal labels, with the mean of their probability."""
        own = self.label_scores()
        steps = [
            PredictedStep(
                float(start), float(end), classes.names[label], float(own[first:stop].mean())
            )
            for start, end, label, first, stop in self._runs()
        ]
        return Labelled(self.video, self.fps, steps, model)

    def outlooks(self, classes: Classes) -> Iterator[OutlookRow]:
        """Yield the outlook of every step."""
        assert self.outlook is not None
        for start, end, label, first, stop in self._runs():
            told = of_step(self.outlook[first:stop]).row(classes.names)
            yield self.video, float(start), float(end), classes.names[label], told

    def _runs(self) -> Iterator[tuple[float, float, int, int, int]]:
        """Yield begin, end, label, first token and the one after the last of every step."""
        names = self.scores.shape[1]
        parts = np.searchsorted(np.array(self.cuts), np.arange(len(self.labels)), side="right")
        spans = label_spans(self.labels + names * parts, self.times_s, self.step_s)
        columns = (spans.begin_s, spans.until_s, spans.labels % names, spans.first, spans.end)
        return zip(*columns, strict=True)

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
    version = opened_folder(models, out, formats, cleaning)
    known = notes(out)
    done: dict[str, dict[str, Any]] = {}
    failed, resumed = {}, 0
    for name, video in videos.items():
        try:
            digest = video_digest(video)
            if note := finished(out, name, digest):
                done[name], resumed = note, resumed + 1
                continue
            found = predicted(models, video, file_name(name, video), cleaning)
        except (InputError, OSError) as error:  # of this video: errors of writing end the run
            failed[name] = str(error)
            continue
        write_video(found, models.classes, version, out, name, formats)
        done[name] = known[name] = video_note(found, models.classes, digest)
        finish(out, name, done[name])
        write_segments(out / TABLE, noted_steps(known.values()))
    if resumed:  # it may have ended before the table was whole
        write_segments(out / TABLE, noted_steps(known.values()))
    return PredictOutcome(done, failed, resumed)


def opened_folder(models: Models, out: Path, formats: Sequence[str], cleaning: Cleaning) -> str:
    """Begin or reopen the folder to write; return the version of the models."""
    if not is_ours(out):
        check_new_folder(out)
    version = model_version(models)
    begin_folder(out, made_by(models, version, formats, cleaning))
    check_table(out)
    if "labelstudio" in formats:
        write_config(out, models.classes.names)
    return version


def video_digest(video: Path) -> str:
    """Return the content hash of a video, which tells whether it was replaced."""
    check_name(video)
    if not video.is_file():
        raise InputError(f"{video}: no such video")
    return file_sha256(video)


def made_by(
    models: Models, version: str, formats: Sequence[str], cleaning: Cleaning
) -> dict[str, Any]:
    """Return what the files of a folder depend on besides the videos."""
    rule = models.rule
    tokens = rule.block if rule.found is None else rule.found.config.tokens
    settings = {"segments": f"{rule.kind} {tokens}", "formats": sorted(formats)}
    return {"model": version, **settings, **vars(cleaning)}


def file_name(name: str, video: Path) -> str:
    """Return the video's own name, with its folders; `name` has its suffix if it is needed."""
    return name if name.endswith(video.suffix) else f"{name}{video.suffix}"


def video_note(found: Predicted, classes: Classes, digest: str) -> dict[str, Any]:
    """Return what is noted of a finished video: enough for the table of all."""
    labelled = found.labelled(classes)
    steps = [[step.start, step.end, step.label, step.score] for step in labelled.steps]
    told = {"video": found.video, "fps": found.fps, "distance": found.distance}
    return {**told, "steps": steps, "sha256": digest}


def noted_steps(found: Iterable[Mapping[str, Any]]) -> list[Labelled]:
    """Return the steps of finished videos, sorted by name."""
    return [
        Labelled(note["video"], note["fps"], [PredictedStep(*step) for step in note["steps"]])
        for note in sorted(found, key=lambda note: natural(note["video"]))
    ]


def check_table(out: Path) -> None:
    """Raise if the table of an earlier run holds rows that it did not write."""
    table = out / TABLE
    if not table.exists():
        return
    with TemporaryDirectory() as place:
        write_segments(Path(place) / TABLE, noted_steps(notes(out).values()))
        written = set((Path(place) / TABLE).read_text(encoding="utf-8").splitlines())
    if not written.issuperset(table.read_text(encoding="utf-8").splitlines()):
        raise InputError(f"{table}: was changed by hand and would be lost; name a new folder")


def write_video(
    found: Predicted,
    classes: Classes,
    version: str,
    out: Path,
    name: str,
    formats: Sequence[str],
) -> None:
    """Write the files of one video: scores, a timeline and other formats."""
    (out / name).parent.mkdir(parents=True, exist_ok=True)
    draw_timeline(found, classes, out / f"{name}.png")
    for kind in formats:
        write_format(kind, found.labelled(classes, version), out, name)
    write_scores(out / SCORES / f"{name}.parquet", found, classes)
    if found.outlook is not None:
        write_outlook(out / OUTLOOK / f"{name}.csv", list(found.outlooks(classes)))


def model_version(models: Models) -> str:
    """Return the probe's cell and a hash of the weights, which identify predictions later."""
    pooler, probe = models.folders
    used = [pooler, probe, *([pooler.parent / "pjepa"] if models.encoder is not None else [])]
    used += [] if models.outlook is None else models.outlook.folders
    return f"{probe.resolve().parent.name} {fingerprint([content_sha256(part) for part in used])}"


def predicted(
    models: Models, video: Path, name: str = "", cleaning: Cleaning = AS_SCORED
) -> Predicted:
    """Return the class probabilities and labels of one video's tokens."""
    info = frame_index(video).info
    per_step = models.pooler.facts.per_step
    tokens = video_tokens(models, video, info)
    rate = models.patches.tokens_fps * per_step
    token_cuts = tuple(cut_steps(info.jumps_s, rate))
    features, segments = represented(models, tokens, video.name, info.jumps_s)
    scores = models.probe.predict(features, segments)
    labels = cleaned_labels(scores, 1 / rate, cleaning, token_cuts)
    times = np.arange(len(tokens)) / rate
    apart, rows = None if models.familiar is None else models.familiar.distance(tokens), None
    if models.outlook is not None:
        rows = models.outlook.whole(tokens, features, runs(segments)[1].tolist(), 1 / rate)
    return Predicted(
        name or video.name, info.fps, 1 / rate, times, scores, labels, token_cuts, apart, rows
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
            found = list(_pooled(models, _encoded(models, iter(ready), meter), cuts))
    except StalledError:
        raise InputError(f"{video}: the decoder hangs; re-encode this video") from None
    return np.concatenate(found)


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


def write_segments(path: Path, found: Sequence[Labelled]) -> None:
    """Write one row per step in the format of the `folder` source, plus a score."""
    with atomic_file(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        sheet = csv.writer(file, lineterminator="\n")
        sheet.writerow(["video", "start", "end", "label", "score"])
        for labelled in found:
            for step in labelled.steps:
                times = f"{step.start:.3f}", f"{step.end:.3f}"
                video, label = sheet_cell(labelled.video), sheet_cell(step.label)
                sheet.writerow([video, *times, label, f"{step.score:.4f}"])


def write_scores(path: Path, found: Predicted, classes: Classes) -> None:
    """Write one row per token: its probability of every class, in the order of `classes`."""
    count = len(classes.names)
    about = json.dumps({"names": list(classes.names), "background": classes.background})
    flat = pa.array(found.scores.astype(np.float32).ravel(), pa.float32())
    columns = {
        "video": pa.array([found.video] * len(found.times_s), pa.string()),
        "time_s": pa.array(found.times_s, pa.float64()),
        "prediction": pa.array(found.labels.astype(np.int32)),
        "score": pa.array(found.label_scores().astype(np.float32)),
        "scores": pa.FixedSizeListArray.from_arrays(flat, count),
    }
    table = pa.table(columns).replace_schema_metadata({b"classes": about.encode()})
    with atomic_file(path) as partial:
        pq.write_table(table, partial)


def draw_timeline(found: Predicted, classes: Classes, path: Path) -> None:
    """Draw the predicted steps of one video as a coloured strip."""
    strip = Strip("prediction", found.labels)
    draw_strips([strip], found.times_s, found.step_s, classes, " ".join(found.video.split()), path)
