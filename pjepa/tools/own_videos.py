"""Features for people without a pipeline: videos in, one file of tokens per video out.

An output is named after its video, below the folder that was given; a JSON file beside it describes
the numbers. A video whose output was made with the same settings is left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    store_path,
)
from pjepa.storage.reading import read_object
from pjepa.storage.sealed import remove_sealed
from pjepa.storage.writing import atomic_file, remove_partials, write_json, write_tensors
from pjepa.streams.provenance import Provenance, StreamInfo
from pjepa.streams.stream import StreamWriter, Take
from pjepa.ui.console import InputError, say
from pjepa.video.files import VIDEO_SUFFIXES, check_name, found_videos
from pjepa.video.index import expected_seconds

WORK = ".pjepa"  # what is not finished, inside the output folder
ENDINGS = {"npy": ".npy", "npy-dt": ".npy", "safetensors": ".safetensors", "parquet": ".parquet"}
# patches [T, cells, width] and the seconds at which a new recording begins -> [T, ...]
Pooling = Callable[[NDArray[np.float16], Sequence[float]], NDArray[np.float32]]


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

    def file(self, name: str) -> Path:
        """Return where a video's features go: always inside the output folder."""
        return self.folder / f"{name}{ENDINGS[self.format]}"

    def sidecar(self, name: str) -> Path:
        """Return the description of a video's features."""
        return self.folder / f"{name}{ENDINGS[self.format]}.json"


def own_videos(inputs: list[Path]) -> dict[str, Path]:
    """Return the videos given, and those in the folders given, each under a name of its own.

    Names follow the folders; of two videos that differ in their ending only, both keep theirs. A
    file is taken once, not again by its links.
    """
    unique: dict[Path, tuple[Path, Path]] = {}
    for path, name in sorted(_listed(inputs), key=lambda each: each[0].is_symlink()):  # links last
        first = unique.setdefault(path.resolve(), (path, name))
        if first[1] != name:
            say(f"{path}: the same file as {first[0]}, left out")
    stems = Counter(name.with_suffix("") for _, name in unique.values())
    videos: dict[str, Path] = {}
    for path, name in unique.values():
        stem = name.with_suffix("")
        named = (name if stems[stem] > 1 else stem).as_posix()
        if named in videos:
            hint = "take them one by one, each into its own folder"
            raise InputError(f"{videos[named]} and {path} have one name; {hint}")
        videos[named] = path
    return videos


def _listed(inputs: list[Path]) -> Iterator[tuple[Path, Path]]:
    """Yield every video and its name below the folder that was given."""
    for given in inputs:
        if not given.is_dir():
            yield given, Path(given.name)
        elif names := found_videos(given):
            yield from ((given / name, Path(name)) for name in names)
        else:
            raise InputError(f"{given}: no videos in this folder ({', '.join(VIDEO_SUFFIXES)})")


def extract_own(
    videos: dict[str, Path],
    config: PatchesConfig,
    facts: BackboneFacts,
    output: Output,
    execute: Executor,
) -> dict[str, str]:
    """Write the features of every video; return the unreadable ones, each with the reason."""
    work = output.folder / WORK
    work.mkdir(parents=True, exist_ok=True)
    remove_partials(work)
    absent = {name: fault for name, path in videos.items() if (fault := _fault(path))}
    present = {name: path for name, path in videos.items() if name not in absent}
    jobs = _jobs(present, config, facts, work)
    repeats = config.on_error == "repeat"
    waiting = {job.take_id: job for job in jobs if not _is_done(job, output, repeats)}
    if len(waiting) < len(jobs):
        say(f"extract: {len(jobs) - len(waiting)} of {len(jobs)} videos are done already")
    steps = sum(expected_steps(job, config) for job in waiting.values())
    check_disk(stored_bytes(steps, config, facts), work)
    info = patch_info(config, facts)
    failed = encode_missing(
        list(waiting.values()), config, facts, execute,
        lambda name: write_features(waiting[name], info, output), "extract: video",
    )  # fmt: skip
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
    videos: dict[str, Path], config: PatchesConfig, facts: BackboneFacts, work: Path
) -> list[Job]:
    settings, jobs = byte_settings(config), []
    paths = [path.resolve() for path in videos.values()]
    hashes = video_hashes(paths, work, config)
    for (name, given), path, digest in zip(videos.items(), paths, hashes, strict=True):
        # The name belongs to the key: two equal files are two outputs, each with its own work.
        named = {**settings, "name": name}
        target = store_path(work, digest, named, None, facts.weights_id)
        about = 0.0
        with suppress(InputError):  # encoding it reports what is wrong
            about = expected_seconds(path)
        jobs.append(Job(name, str(given), path, 0.0, None, target, about))
    return jobs


def _made_by(job: Job, output: Output) -> dict[str, str]:
    """Return what tells outputs apart: the work's key and how it was pooled and written."""
    return {
        "key": job.target.stem,
        "pooled_by": output.pooled_by,
        "format": output.format,
        "dtype": output.dtype,
    }


def _is_done(job: Job, output: Output, repeats: bool) -> bool:
    """Return whether the file is there, made like this; raise if it was not made by this tool."""
    file, sidecar = output.file(job.take_id), output.sidecar(job.take_id)
    if not file.exists() and not sidecar.exists():
        return False
    try:
        facts = read_object(sidecar, "made_by")
    except InputError:
        wrong = sidecar if sidecar.exists() else file
        reason = "exists and was not made by extract; choose another --out"
        raise InputError(f"{wrong}: {reason}") from None
    whole = repeats or not facts.get("frames_lost", True)
    return file.is_file() and whole and facts["made_by"] == _made_by(job, output)


def write_features(job: Job, info: PatchInfo, output: Output) -> None:
    """Write a video's file and sidecar from the encoded patches, then remove the patches."""
    facts = output.stream or StreamInfo(
        source=f"{info.backbone} ({info.weights_id})",
        fps=info.tokens_fps,
        width=info.width,
        provenance=Provenance(lookahead_s=info.sampling.lookahead_s),
    )
    patches = read_patches(job.target).patches
    tokens = output.pooling(patches, read_notes(job.target).jumps_s).astype(output.dtype)
    times = token_times(len(tokens), facts.fps)
    if output.format == "npy-dt":
        tokens = np.moveaxis(tokens, 0, -1)
    tokens = np.ascontiguousarray(tokens)
    with atomic_file(output.file(job.take_id)) as partial:
        if output.format == "parquet":
            _write_stream(partial, job.take_id, tokens, times, facts, output.dtype)
        elif output.format == "safetensors":
            write_tensors(partial, {"features": tokens, "time_s": times})
        else:
            with partial.open("wb") as file:
                np.save(file, tokens)
    write_json(output.sidecar(job.take_id), _described(job, info, facts, tokens, times, output))
    for path in (*note_files(job.target), job.target):
        remove_sealed(path)


def _write_stream(
    file: Path, name: str, tokens: NDArray[Any], times: NDArray[np.float64], facts: StreamInfo,
    dtype: str,
) -> None:  # fmt: skip
    """Write a stream for `pjepa.read_stream`, polars and duckdb."""
    none, count = np.full(len(times), -1, np.int32), np.arange(len(times), dtype=np.int32)
    with StreamWriter(file, facts, dtype) as writer:
        writer.write(Take(name, tokens, times, none, count))


def _described(
    job: Job, info: PatchInfo, facts: StreamInfo, tokens: NDArray[Any], times: NDArray[np.float64],
    output: Output,
) -> dict[str, Any]:  # fmt: skip
    """Return what the numbers in a file are; `time_s` is each token's first frame.

    `lookahead_s` is null where a token may depend on anything in its video.
    """
    seen = facts.provenance
    return {
        "video": Path(job.name).name,
        "fps": facts.fps,
        "tokens": len(times),
        "shape": list(tokens.shape),
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
