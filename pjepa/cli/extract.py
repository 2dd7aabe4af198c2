"""`pjepa extract` and `pjepa plan`: features for videos, and what they will cost."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from pjepa import paths
from pjepa.cli.app import app, one_line_errors
from pjepa.config.patches import PatchesConfig, tubelet_of
from pjepa.config.section import one_line, read_section
from pjepa.errors import InputError
from pjepa.progress import say

if TYPE_CHECKING:
    from pjepa.features.own_videos import Output


class Format(StrEnum):
    npy = "npy"
    npy_dt = "npy-dt"
    safetensors = "safetensors"
    parquet = "parquet"


class Pool(StrEnum):
    mean = "mean"
    none = "none"


class Dtype(StrEnum):
    float16 = "float16"
    float32 = "float32"


class WindowMode(StrEnum):
    block = "block"
    trailing = "trailing"


class ReaderName(StrEnum):
    auto = "auto"
    decord = "decord"
    pyav = "pyav"


class OnError(StrEnum):
    fail = "fail"
    skip = "skip"


@app.command()
def extract(
    inputs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="VIDEO|FOLDER", help="Without any: the takes of this project."),
    ] = None,
    backbone: Annotated[
        str, typer.Option(help="vjepa2_1_vit_{base,large,giant,gigantic}_384, or timm:NAME.")
    ] = "vjepa2_1_vit_large_384",
    checkpoint: Annotated[
        str, typer.Option(help="official, a file, or random (untrained weights).")
    ] = "official",
    out: Annotated[Path, typer.Option(help="Where the features go.")] = Path("features"),
    fps: Annotated[float, typer.Option(min=0.001, help="Tokens per second.")] = 4.0,
    pool: Annotated[Pool, typer.Option(help="mean over patches, or none: every cell.")] = Pool.mean,
    grid: Annotated[
        int, typer.Option(min=0, help="Cells a side with --pool none; 0 keeps every patch.")
    ] = 0,
    form: Annotated[
        Format, typer.Option("--format", help="npy is time first, npy-dt feature first.")
    ] = Format.npy,
    dtype: Annotated[Dtype, typer.Option(help="Of the numbers written.")] = Dtype.float32,
    frames_per_window: Annotated[int, typer.Option(min=1, help="Frames encoded together.")] = 64,
    window_mode: Annotated[
        WindowMode, typer.Option(help="trailing: no token sees beyond its stride.")
    ] = WindowMode.block,
    window_stride: Annotated[int, typer.Option(min=1, help="Tokens kept of such a window.")] = 1,
    crop: Annotated[int, typer.Option(min=0, help="Pixels a side; 0: the backbone's own.")] = 0,
    reader: Annotated[ReaderName, typer.Option(help="Video decoder.")] = ReaderName.auto,
    on_error: Annotated[
        OnError, typer.Option(help="skip: exit code 0 although videos cannot be read.")
    ] = OnError.fail,
    shard: Annotated[
        str, typer.Option(metavar="I/N", help="The I-th of N parts, from 0/N to N-1/N.")
    ] = "0/1",
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
    threads: Annotated[int, typer.Option(min=1, help="Threads of each; can change bytes.")] = 1,
    batch_windows: Annotated[int, typer.Option(min=1, help="Windows encoded at once.")] = 1,
    precision: Annotated[str, typer.Option(help="fp32, or bf16 (autocast).")] = "fp32",
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu",
) -> None:
    """Write one token per time step for your own videos, or encode takes of this project."""
    with one_line_errors():
        part = shard_of(shard)
        if not inputs:
            extract_takes(part)
            return
        options: dict[str, Any] = {
            "backbone": backbone,
            "checkpoint": checkpoint,
            "fps": tubelet_of(backbone) * fps,
            "frames_per_window": frames_per_window,
            "crop": crop,
            "window_scope": "take",
            "window_mode": window_mode.value,
            "window_stride": window_stride,
            "reader": reader.value,
            "on_error": on_error.value,
            "grid": 1 if pool is Pool.mean else grid,
            "batch_windows": batch_windows,
            "workers": workers,
            "threads": threads,
            "precision": precision,
            "device": device,
        }
        extract_videos(inputs, options, part, chosen_output(out, form, pool, dtype))


def shard_of(text: str) -> tuple[int, int]:
    """(i, n) of `i/n`, 0 <= i < n."""
    try:
        number, of = (int(part) for part in text.split("/"))
    except ValueError:
        raise InputError(f"--shard {text}: expected two numbers such as 0/8") from None
    if not 0 <= number < of:
        raise InputError(f"--shard {text}: expected 0/{of} to {max(of - 1, 0)}/{of}")
    return number, of


def chosen_output(out: Path, form: Format, pool: Pool, dtype: Dtype) -> Output:
    """How and where features are written."""
    import numpy as np

    from pjepa.features.own_videos import Output

    if form is Format.parquet and pool is Pool.none:
        raise InputError(
            "--format parquet holds one token per row; use --pool mean, or safetensors"
        )
    if pool is Pool.mean:
        return Output(out, form.value, lambda p: np.asarray(p[:, 0]), "mean", dtype.value)
    return Output(out, form.value, np.asarray, "none", dtype.value)


def extract_videos(
    inputs: list[Path], options: dict[str, Any], part: tuple[int, int], output: Output
) -> None:
    """Features of people's own videos; exit code 1 if some cannot be read and none may be left."""
    from pjepa.executors.chosen import chosen_executor
    from pjepa.features.own_videos import extract_own, own_videos

    try:
        config = PatchesConfig.model_validate(options)
    except ValidationError as error:
        fault = one_line(error, PatchesConfig).removeprefix(f"{paths.PARAMS}: ")
        raise InputError(f"extract: {fault}") from None
    videos = own_videos(inputs)[part[0] :: part[1]]
    failed = extract_own(videos, config, output, chosen_executor(config))
    say(f"extract: {len(videos) - len(failed)} of {len(videos)} videos are in {output.folder}")
    for name, reason in failed.items():
        say(f"  {name}: {reason}")
    if failed and (config.on_error == "fail" or len(failed) == len(videos)):
        raise InputError(f"extract: {len(failed)} videos cannot be read, listed above")


def extract_takes(part: tuple[int, int]) -> None:
    """Fills the project's store with a part of its takes: `dvc repro patches` then only links."""
    from pjepa.backbones.extract import extract as extract_missing
    from pjepa.executors.chosen import chosen_executor
    from pjepa.takes.manifest import read_boundaries, read_videos
    from pjepa.work import work_root

    config = read_section(PatchesConfig, "patches")
    rows = read_videos(paths.VIDEOS_TABLE)[part[0] :: part[1]]
    if not rows:
        say(f"extract: shard {part[0]}/{part[1]} holds no take")
        return
    boundaries = read_boundaries(paths.BOUNDARIES_TABLE)
    store = work_root() / "store" / "patches"
    found = extract_missing(rows, boundaries, config, store, chosen_executor(config))
    say(f"extract: {len(found.files)} takes in the store, {found.encoded} encoded now")


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
        found = [video.path for video in own_videos(inputs)]
        return [(header_seconds(path) or frame_index(path).info.duration_s, None) for path in found]
    boundaries = read_boundaries(paths.BOUNDARIES_TABLE)
    return [(r.duration_s, boundaries.get(r.take_id)) for r in read_videos(paths.VIDEOS_TABLE)]
