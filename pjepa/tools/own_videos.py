"""Features for people without a pipeline: videos in, one file of tokens per video out.

An output is named after its video, below the folder that was given; a JSON file beside it describes
the numbers. A video whose output was made with the same settings is left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from pjepa.core.section import FeatureFormat
from pjepa.core.time import token_times
from pjepa.patches.backbone import BackboneFacts
from pjepa.patches.config import PatchesConfig
from pjepa.patches.cost import check_disk, stored_bytes
from pjepa.patches.encode import Job, patch_info
from pjepa.patches.extract import (
    Executor,
    byte_settings,
    encode_missing,
    expected_steps,
    video_hashes,
)
from pjepa.patches.store import (
    PatchInfo,
    note_files,
    read_notes,
    read_patches,
    store_key,
    store_path,
)
from pjepa.storage.reading import read_json, read_object
from pjepa.storage.sealed import remove_sealed
from pjepa.storage.writing import atomic_file, remove_partials, write_json
from pjepa.streams.provenance import Provenance, StreamInfo
from pjepa.streams.stream import StreamWriter, Take
from pjepa.ui.console import InputError, say
from pjepa.video.files import VIDEO_SUFFIXES, check_name, found_videos
from pjepa.video.index import expected_seconds

WORK = ".pjepa"  # what is not finished, inside the output folder
ENDINGS = {"npy": ".npy", "npy-dt": ".npy", "safetensors": ".safetensors", "parquet": ".parquet"}
# patches [T, cells, width] and the steps that begin a new recording -> [T, ...]
Pooling = Callable[[NDArray[np.float16], Sequence[float]], NDArray[np.float32]]


@dataclass(frozen=True)
class OwnVideo:
    """A video and the name of its output, relative to the output folder, without an ending."""

    path: Path
    name: str


@dataclass(frozen=True)
class Output:
    """What is written for a video: how patches become tokens, in which format, at which depth."""

    folder: Path
    format: FeatureFormat
    dtype: str
    pooling: Pooling
    pooled_by: str  # says the pooling in the sidecar, and tells settings apart
    stream: StreamInfo | None = None  # what the tokens are; None: patches and nothing else
    models: dict[str, Any] | None = None  # of a run, for the sidecar


def own_videos(inputs: list[Path]) -> list[OwnVideo]:
    """Return the videos given, and those in the folders given, each with a name of its own.

    Names follow the folders; of two videos that differ in their ending only, both keep theirs. A
    file is taken once, not again by its links.
    """
    found = []
    for given in inputs:
        if given.is_dir():
            inside = [Path(name) for name in found_videos(given)]
            if not inside:
                raise InputError(f"{given}: no videos in this folder ({', '.join(VIDEO_SUFFIXES)})")
            found += [(given / place, place) for place in inside]
        else:
            found.append((given, Path(given.name)))
    found.sort(key=lambda each: each[0].is_symlink())  # a stable sort: files before links
    unique: dict[Path, tuple[Path, Path]] = {}
    for path, place in found:
        first, _ = unique.setdefault(path.resolve(), (path, place))
        if place != unique[path.resolve()][1]:
            say(f"{path}: the same file as {first}, left out")
    stems = Counter(place.with_suffix("") for _, place in unique.values())
    named = [
        OwnVideo(
            path, (place if stems[place.with_suffix("")] > 1 else place.with_suffix("")).as_posix()
        )
        for path, place in unique.values()
    ]
    twice = [name for name, count in Counter(video.name for video in named).items() if count > 1]
    if twice:
        both = [str(video.path) for video in named if video.name == twice[0]]
        raise InputError(
            f"{' and '.join(both)} have one name; take them one by one, each into its own folder"
        )
    return named


def extract_own(
    videos: list[OwnVideo],
    config: PatchesConfig,
    facts: BackboneFacts,
    output: Output,
    execute: Executor,
) -> dict[str, str]:
    """Write the features of every video; return the unreadable ones, each with the reason."""
    work = output.folder / WORK
    work.mkdir(parents=True, exist_ok=True)
    remove_partials(work)
    absent = {video.name: fault for video in videos if (fault := _fault(video.path))}
    jobs = {job.take_id: job for job in _jobs(videos, absent, config, facts, work)}
    repeats = config.on_error == "repeat"
    waiting = {name: job for name, job in jobs.items() if not _is_done(job, output, repeats)}
    if len(waiting) < len(jobs):
        say(f"extract: {len(jobs) - len(waiting)} of {len(jobs)} videos are done already")
    for name in waiting:
        _refuse_foreign(output_file(name, output))
    steps = sum(expected_steps(job, config) for job in waiting.values())
    check_disk(stored_bytes(steps, config, facts), work)
    info = patch_info(config, facts)

    def finish(name: str) -> None:
        write_features(waiting[name], info, output)

    jobs_left = list(waiting.values())
    failed = encode_missing(jobs_left, config, facts, execute, finish, "extract: video")
    reasons = {name: failed[job.target] for name, job in waiting.items() if job.target in failed}
    return {**absent, **reasons}


def _fault(video: Path) -> str:
    """Return why a video cannot be encoded, as far as its name tells."""
    try:
        check_name(video)
    except InputError as error:
        return str(error)
    return "" if video.is_file() else f"{video}: no such video"


def _jobs(
    videos: list[OwnVideo],
    absent: dict[str, str],
    config: PatchesConfig,
    facts: BackboneFacts,
    work: Path,
) -> list[Job]:
    present = [video for video in videos if video.name not in absent]
    paths = [video.path.resolve() for video in present]
    settings, jobs = byte_settings(config), []
    for video, path, digest in zip(present, paths, video_hashes(paths, work, config), strict=True):
        # The name belongs to the key: two equal files are two outputs, each with its own work.
        named = {**settings, "name": video.name}
        target = store_path(work, store_key(digest, named, None, facts.weights_id)).resolve()
        about = 0.0
        with suppress(InputError):  # encoding it reports what is wrong
            about = expected_seconds(path)
        jobs.append(Job(video.name, str(video.path), path, 0.0, None, target, about))
    return jobs


def output_file(name: str, output: Output) -> Path:
    """Return where a video's features go: always inside the output folder."""
    return output.folder / f"{name}{ENDINGS[output.format]}"


def _made_by(job: Job, output: Output) -> dict[str, str]:
    """Return what tells outputs apart: the work's key and how it was pooled and written."""
    return {
        "key": job.target.stem,
        "pooled_by": output.pooled_by,
        "format": output.format,
        "dtype": output.dtype,
    }


def _refuse_foreign(file: Path) -> None:
    """Raise if the file exists and its sidecar does not say that it was made here."""
    sidecar = file.with_name(f"{file.name}.json")
    try:
        own = not sidecar.exists() or "made_by" in read_object(sidecar)
    except InputError:
        own = False
    if not own or (file.exists() and not sidecar.exists()):
        wrong = file if own else sidecar
        raise InputError(f"{wrong}: exists and was not made by extract; choose another --out")


def _is_done(job: Job, output: Output, repeats: bool) -> bool:
    file = output_file(job.take_id, output)
    sidecar = file.with_name(f"{file.name}.json")
    if not (file.is_file() and sidecar.is_file()):
        return False
    try:
        found = read_json(sidecar)
        allowed = repeats or not found["frames_lost"]
        return bool(allowed and found["made_by"] == _made_by(job, output))
    except (InputError, KeyError, TypeError):
        return False


def write_features(job: Job, info: PatchInfo, output: Output) -> None:
    """Write a video's file and sidecar from the encoded patches, then remove the patches."""
    stored = read_patches(job.target)
    tokens = output.pooling(stored.patches, read_notes(job.target).jumps_s).astype(output.dtype)
    file = output_file(job.take_id, output)
    times = token_times(len(tokens), token_facts(info, output).fps)
    with atomic_file(file) as partial:
        _write(partial, _as_take(job.take_id, tokens, times), token_facts(info, output), output)
    write_json(file.with_name(f"{file.name}.json"), sidecar(job, info, tokens, times, output))
    for file in (*note_files(job.target), job.target):
        remove_sealed(file)


def token_facts(info: PatchInfo, output: Output) -> StreamInfo:
    """Return the facts about the tokens: rate, width, labels used upstream, lookahead."""
    return output.stream or StreamInfo(
        source=f"{info.backbone} ({info.weights_id})",
        fps=info.tokens_fps,
        width=info.width,
        provenance=Provenance(lookahead_s=info.sampling.lookahead_s),
    )


def sidecar(
    job: Job, info: PatchInfo, tokens: NDArray[Any], times: NDArray[np.float64], output: Output
) -> dict[str, Any]:
    """Return what the numbers in a file are; `time_s` is each token's first frame.

    `lookahead_s` is null where a token may depend on anything in its video.
    """
    facts = token_facts(info, output)
    seen = facts.provenance
    return {
        "video": Path(job.name).name,
        "fps": facts.fps,
        "tokens": len(tokens),
        "shape": list(_laid_out(tokens, output.format).shape),
        "axes": "feature, time" if output.format == "npy-dt" else "time, feature",
        "backbone": info.backbone,
        "checkpoint": Path(info.checkpoint).name,
        "checkpoint_id": info.weights_id,
        "lookahead_s": None if seen.whole_take else seen.lookahead_s,
        "provenance": seen.model_dump(),
        "models": output.models,
        "frames_lost": read_notes(job.target).repeated,  # and repeated; else the video is refused
        "extraction": {**asdict(info), "checkpoint": Path(info.checkpoint).name},
        "made_by": _made_by(job, output),
        "time_s": times.tolist(),
    }


def _laid_out(tokens: NDArray[Any], form: FeatureFormat) -> NDArray[Any]:
    return np.moveaxis(tokens, 0, -1) if form == "npy-dt" else tokens


def _as_take(name: str, tokens: NDArray[Any], times: NDArray[np.float64]) -> Take:
    none, count = np.full(len(tokens), -1, np.int32), len(tokens)
    return Take(name, tokens, times, none, np.arange(count, dtype=np.int32))


def _write(file: Path, take: Take, facts: StreamInfo, output: Output) -> None:
    """Write the tokens; a Parquet file is a stream for `pjepa.read_stream`, polars and duckdb."""
    if output.format in ("npy", "npy-dt"):
        with file.open("wb") as out:
            np.save(out, np.ascontiguousarray(_laid_out(take.features, output.format)))
    elif output.format == "safetensors":
        save_file({"features": np.ascontiguousarray(take.features), "time_s": take.times}, file)
    else:
        with StreamWriter(file, facts, output.dtype) as writer:
            writer.write(take)
