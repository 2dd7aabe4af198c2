"""`pjepa extract`: features for videos."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import ValidationError

from pjepa import paths
from pjepa.cli.app import app, one_line_errors
from pjepa.cli.extract_options import is_given, refuse_idle_options
from pjepa.cli.live import SegmentRule as SegmentChoice
from pjepa.cli.live import Segments, SegmentTokens, Training
from pjepa.config.patches import PatchesConfig, tubelet_of
from pjepa.config.section import one_line, read_section
from pjepa.errors import InputError
from pjepa.progress import say

if TYPE_CHECKING:
    from pjepa.backbones.backbone import BackboneFacts
    from pjepa.features.own_videos import Output
    from pjepa.live.models import Wanted


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


class Representation(StrEnum):
    pjepa = "pjepa"
    raw = "raw"


class Resampler(StrEnum):
    cv2 = "cv2"
    antialias = "antialias"


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
    context: typer.Context,
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
    model: Annotated[
        Path | None,
        typer.Option(help="Models of a run (models/ with pooler/ and pjepa/): its features."),
    ] = None,
    representation: Annotated[
        Representation, typer.Option(help="With --model: encoder features, or its input tokens.")
    ] = Representation.pjepa,
    segments: SegmentChoice = Segments.AUTO,
    segment_tokens: SegmentTokens = None,
    training: Training = paths.STREAM,
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
    resampler: Annotated[
        Resampler, typer.Option(help="cv2, as the data-set code, or antialiased.")
    ] = Resampler.cv2,
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
        refuse_idle_options(context)
        if not inputs:
            extract_takes(part)
            return
        machine: dict[str, Any] = {
            "reader": reader.value,
            "on_error": on_error.value,
            "batch_windows": batch_windows,
            "workers": workers,
            "threads": threads,
            "device": device,
        }
        if model is not None:
            from pjepa.live.models import Wanted

            wanted = Wanted(
                model, as_trained=True, segments=segments.value, tokens=segment_tokens,
                training=training, takes=paths.TAKES_TABLE, device=device,
            )  # fmt: skip
            machine |= {"checkpoint": checkpoint} if is_given(context, "checkpoint") else {}
            target = Target(out, form, dtype)
            extract_videos(inputs, part, *trained(wanted, representation, machine, target))
            return
        options: dict[str, Any] = {
            "backbone": backbone,
            "checkpoint": checkpoint,
            "fps": tubelet_of(backbone) * fps,
            "frames_per_window": frames_per_window,
            "crop": crop,
            "resampler": resampler.value,
            "window_scope": "take",
            "window_mode": window_mode.value,
            "window_stride": window_stride,
            "grid": 1 if pool is Pool.mean else grid,
            "precision": precision,
        }
        from pjepa.backbones.backbone import backbone_facts

        config = _checked({**options, **machine})
        output = chosen_output(Target(out, form, dtype), pool)
        extract_videos(inputs, part, config, backbone_facts(config), output)


@dataclass(frozen=True)
class Target:
    """Where and how features are written."""

    out: Path
    form: Format
    dtype: Dtype


def _checked(options: dict[str, Any]) -> PatchesConfig:
    try:
        return PatchesConfig.model_validate(options)
    except ValidationError as error:
        fault = one_line(error, PatchesConfig).removeprefix(f"{paths.PARAMS}: ")
        raise InputError(f"extract: {fault}") from None


def shard_of(text: str) -> tuple[int, int]:
    """(i, n) of `i/n`, 0 <= i < n."""
    try:
        number, of = (int(part) for part in text.split("/"))
    except ValueError:
        raise InputError(f"--shard {text}: expected two numbers such as 0/8") from None
    if not 0 <= number < of:
        raise InputError(f"--shard {text}: expected 0/{of} to {max(of - 1, 0)}/{of}")
    return number, of


def chosen_output(target: Target, pool: Pool) -> Output:
    """Patches alone, averaged or all of them."""
    import numpy as np

    from pjepa.features.own_videos import Output

    if target.form is Format.parquet and pool is Pool.none:
        raise InputError(
            "--format parquet holds one token per row; use --pool mean, or safetensors"
        )
    if pool is Pool.mean:
        return Output(
            target.out, target.form.value, lambda p: np.asarray(p[:, 0]), "mean", target.dtype.value
        )
    return Output(target.out, target.form.value, np.asarray, "none", target.dtype.value)


def trained(
    wanted: Wanted, representation: Representation, machine: dict[str, Any], target: Target
) -> tuple[PatchesConfig, BackboneFacts, Output]:
    """Settings, backbone and output of the models of a run; says where they differ from it."""
    from functools import partial

    import torch

    from pjepa.backbones.backbone import backbone_facts
    from pjepa.features.own_videos import Output
    from pjepa.live.features import features_info, model_facts, patch_features
    from pjepa.live.models import check_weights, load_stack
    from pjepa.work import fingerprint

    torch.set_num_threads(machine["threads"])
    stack = load_stack(wanted, representation.value)
    config = _checked({**stack.patches.model_dump(), **machine})
    facts = backbone_facts(config)
    check_weights(facts, stack.pooler.facts.patches)
    for note in stack.notes:
        say(f"note: {note}")
    models = model_facts(stack, wanted.model)
    spread = None if stack.rule.found is None else stack.rule.found.std.tolist()
    made_by = f"{representation.value} {fingerprint(models, spread)}"
    output = Output(
        target.out, target.form.value, partial(patch_features, stack), made_by, target.dtype.value,
        features_info(stack, wanted.model), models,
    )  # fmt: skip
    return config, facts, output


def extract_videos(
    inputs: list[Path],
    part: tuple[int, int],
    config: PatchesConfig,
    facts: BackboneFacts,
    output: Output,
) -> None:
    """Features of people's own videos; exit code 1 if some cannot be read and none may be left."""
    from pjepa.executors.chosen import chosen_executor
    from pjepa.features.own_videos import extract_own, own_videos

    videos = own_videos(inputs)[part[0] :: part[1]]
    failed = extract_own(videos, config, facts, output, chosen_executor(config))
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
