"""`pjepa extract`: features for videos."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pjepa.core.choices import FeatureFormat, Resampler
from pjepa.core.machine import resolved_device
from pjepa.core.section import read_section
from pjepa.patches.config import PatchesConfig
from pjepa.tools import paths
from pjepa.tools.cli.app import DEVICE, FEATURES, app, one_line_errors
from pjepa.tools.cli.extract_options import (
    BACKBONE,
    BackboneOption,
    CropOption,
    FpsOption,
    FramesOption,
    GridOption,
    Inputs,
    ModelOption,
    ModeOption,
    Pool,
    PoolOption,
    StrideOption,
    checked,
    is_given,
    named_config,
    refuse_idle_options,
    spoken_as_options,
)
from pjepa.tools.cli.live import SegmentsOption, SegmentTokensOption, TrainingOption
from pjepa.tools.cli.reading import ReaderChoice
from pjepa.ui.errors import InputError
from pjepa.ui.progress import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pjepa.live.models import Wanted
    from pjepa.patches.backbone import BackboneFacts
    from pjepa.tools.own_videos import Output


Dtype = Literal["float16", "float32"]
Representation = Literal["pjepa", "raw"]
OnError = Literal["fail", "repeat", "skip"]


@app.command(rich_help_panel=FEATURES)
def extract(
    context: typer.Context,
    inputs: Inputs = None,
    backbone: BackboneOption = BACKBONE,
    checkpoint: Annotated[
        str, typer.Option(help="Weights: official, a file, or random (untrained).")
    ] = "official",
    out: Annotated[Path, typer.Option(help="Folder to write.")] = Path("features"),
    model: ModelOption = None,
    representation: Annotated[
        Representation, typer.Option(help="With --model: pjepa features, or the raw tokens.")
    ] = "pjepa",
    segments: SegmentsOption = "auto",
    segment_tokens: SegmentTokensOption = None,
    training: TrainingOption = paths.STREAM,
    fps: FpsOption = 4.0,
    pool: PoolOption = "mean",
    grid: GridOption = 0,
    form: Annotated[
        FeatureFormat,
        typer.Option("--format", help="npy: time, then features; npy-dt: the other way round."),
    ] = "npy",
    dtype: Annotated[Dtype, typer.Option(help="Number type of the files.")] = "float32",
    frames_per_window: FramesOption = 64,
    window_mode: ModeOption = "block",
    window_stride: StrideOption = 1,
    crop: CropOption = 0,
    resampler: Annotated[
        Resampler,
        typer.Option(help="How frames are resized: cv2, as V-JEPA's code, or antialiased."),
    ] = "cv2",
    reader: ReaderChoice = "auto",
    on_error: Annotated[
        OnError,
        typer.Option(
            help="fail: exit code 1 if a video cannot be read; skip: leave it out, exit code 0; "
            "repeat: fill a frame that cannot be decoded with the one before."
        ),
    ] = "fail",
    shard: Annotated[
        str, typer.Option(metavar="I/N", help="Encode only part I of N; I counts from 0.")
    ] = "0/1",
    workers: Annotated[int, typer.Option(min=1, help="Number of processes.")] = 1,
    threads: Annotated[
        int, typer.Option(min=1, help="Threads per process; can change the last digits.")
    ] = 1,
    batch_windows: Annotated[int, typer.Option(min=1, help="Windows encoded at once.")] = 1,
    precision: Annotated[str, typer.Option(help="fp32 or bf16 (autocast).")] = "fp32",
    device: Annotated[str, typer.Option(help=DEVICE, callback=resolved_device)] = "auto",
) -> None:
    """Write one feature vector (token) per time step of your videos.

    Without videos, encode the takes of this project, or a `--shard` of
    them, for the stage `patches`.
    """
    with one_line_errors():
        part = shard_of(shard)
        refuse_idle_options(context)
        if not inputs:
            extract_takes(part)
            return
    with one_line_errors(), spoken_as_options(context):
        machine: dict[str, Any] = {
            "reader": reader,
            "on_error": on_error,
            "batch_windows": batch_windows,
            "workers": workers,
            "threads": threads,
            "device": device,
        }
        if model is not None:
            from pjepa.live.models import Wanted

            wanted = Wanted(
                model, as_trained=True, segments=segments, tokens=segment_tokens,
                training=training, takes=paths.TAKES_TABLE, device=device,
            )  # fmt: skip
            machine |= {"checkpoint": checkpoint} if is_given(context, "checkpoint") else {}
            target = Target(out, form, dtype)
            extract_videos(inputs, part, *trained(wanted, representation, machine, target))
            return
        from pjepa.patches.backbone import backbone_facts

        encoding = {"checkpoint": checkpoint, "resampler": resampler, "precision": precision}
        config = named_config(context.params, **encoding, **machine)
        refuse_missing_weights(config)
        output = chosen_output(Target(out, form, dtype), pool)
        extract_videos(inputs, part, config, backbone_facts(config), output)


@dataclass(frozen=True)
class Target:
    """Where and how features are written."""

    out: Path
    form: FeatureFormat
    dtype: Dtype


def refuse_missing_weights(config: PatchesConfig) -> None:
    """Say how to get the weights, and what can be tried without."""
    from pjepa.tools.trying import as_options, missing_weights

    if missing := missing_weights(config):
        raise InputError(f"{missing}; or try it untrained, in minutes on a CPU: {as_options()}")


def shard_of(text: str) -> tuple[int, int]:
    """Return (i, n) of `i/n`, 0 <= i < n."""
    try:
        number, of = (int(part) for part in text.split("/"))
    except ValueError:
        raise InputError(f"--shard {text}: expected two numbers such as 0/8") from None
    if not 0 <= number < of:
        raise InputError(f"--shard {text}: expected 0/{of} to {max(of - 1, 0)}/{of}")
    return number, of


def chosen_output(target: Target, pool: Pool) -> Output:
    """Return the output of a backbone alone: patches averaged, or all of them."""
    import numpy as np

    from pjepa.tools.own_videos import Output

    if target.form == "parquet" and pool == "none":
        raise InputError(
            "--format parquet holds one token per row; use --pool mean, or safetensors"
        )

    def pooling(patches: NDArray[Any], cuts: Sequence[int]) -> NDArray[Any]:
        return np.asarray(patches[:, 0] if pool == "mean" else patches)

    return Output(target.out, target.form, pooling, pool, target.dtype)


def trained(
    wanted: Wanted, representation: Representation, machine: dict[str, Any], target: Target
) -> tuple[PatchesConfig, BackboneFacts, Output]:
    """Return settings, backbone and output of a run's models; report where they differ."""
    from functools import partial

    import torch

    from pjepa.core.files import fingerprint
    from pjepa.live.features import features_info, model_facts, patch_features
    from pjepa.live.models import check_weights, load_feature_models
    from pjepa.patches.backbone import backbone_facts
    from pjepa.tools.own_videos import Output

    torch.set_num_threads(machine["threads"])
    stack = load_feature_models(wanted, representation)
    config = checked({**stack.patches.model_dump(), **machine})
    facts = backbone_facts(config)
    check_weights(facts, stack.pooler.facts.patches)
    for note in stack.notes:
        say(f"note: {note}")
    models = model_facts(stack, wanted.model)
    spread = None if stack.rule.found is None else stack.rule.found.std.tolist()
    made_by = f"{representation} {fingerprint(models, spread)}"
    output = Output(
        target.out, target.form, partial(patch_features, stack), made_by, target.dtype,
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
    """Extract features of named videos; exit code 1 if one fails and may not be skipped."""
    from pjepa.patches.executors.chosen import chosen_executor
    from pjepa.tools.own_videos import extract_own, own_videos

    videos = own_videos(inputs)[part[0] :: part[1]]
    failed = extract_own(videos, config, facts, output, chosen_executor(config))
    say(f"extract: {len(videos) - len(failed)} of {len(videos)} videos are in {output.folder}")
    for name, reason in failed.items():
        say(f"  {name}: {reason}")
    if failed and (config.on_error != "skip" or len(failed) == len(videos)):
        raise InputError(f"extract: {len(failed)} videos cannot be read, listed above")


def extract_takes(part: tuple[int, int]) -> None:
    """Fill the project's store with a part of its takes; `dvc repro patches` then only links."""
    from pjepa.core.resume import work_root
    from pjepa.core.tables import read_boundaries, read_videos
    from pjepa.patches.executors.chosen import chosen_executor
    from pjepa.patches.extract import extract as extract_missing
    from pjepa.patches.identity import as_measured

    config = as_measured(read_section(PatchesConfig, "patches"), paths.VIDEOS_TABLE)
    rows = read_videos(paths.VIDEOS_TABLE)[part[0] :: part[1]]
    if not rows:
        say(f"extract: shard {part[0]}/{part[1]} holds no take")
        return
    boundaries = read_boundaries(paths.BOUNDARIES_TABLE)
    store = work_root() / "store" / "patches"
    found = extract_missing(rows, boundaries, config, store, chosen_executor(config))
    say(f"extract: {len(found.files)} takes in the store, {found.encoded} encoded now")
