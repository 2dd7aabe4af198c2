"""`pjepa extract`: features for videos."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import ValidationError

from pjepa.core.machine import resolved_device
from pjepa.core.section import (
    FeatureFormat,
    ReaderName,
    Resampler,
    WindowMode,
    first_fault,
    read_section,
)
from pjepa.patches.config import PatchesConfig, tubelet_of
from pjepa.tools import paths
from pjepa.tools.cli.app import (
    DEVICE,
    FEATURES,
    SegmentsOption,
    SegmentTokensOption,
    TrainingOption,
    app,
    one_line_errors,
)
from pjepa.ui.console import InputError, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pjepa.live.models import Wanted
    from pjepa.patches.backbone import BackboneFacts
    from pjepa.patches.config import PatchesConfig
    from pjepa.tools.own_videos import Output

# The options that `pjepa extract` and `pjepa plan` share, and which of them go together.

Pool = Literal["mean", "none"]
Inputs = Annotated[
    list[Path] | None,
    typer.Argument(metavar="VIDEO|FOLDER", help="Default: the takes of this project."),
]
BackboneOption = Annotated[
    str,
    typer.Option(help="vjepa2_1_vit_SIZE_384 (base, large, giant, gigantic), timm:NAME, hf:NAME."),
]
BACKBONE = "vjepa2_1_vit_large_384"
ModelOption = Annotated[
    Path | None,
    typer.Option(help="Use the models of a run: a folder with pooler/ and pjepa/."),
]
FpsOption = Annotated[float, typer.Option(min=0.001, help="Tokens per second.")]
PoolOption = Annotated[
    Pool, typer.Option(help="mean: average over patches; none: keep their grid.")
]
GridOption = Annotated[
    int, typer.Option(min=0, help="With --pool none: side of the grid; 0 keeps every patch.")
]
FramesOption = Annotated[int, typer.Option(min=1, help="Frames encoded together.")]
ModeOption = Annotated[
    WindowMode,
    typer.Option(help="block: windows side by side; trailing: windows end with their tokens."),
]
StrideOption = Annotated[int, typer.Option(min=1, help="Tokens kept from each trailing window.")]
CropOption = Annotated[
    int, typer.Option(min=0, help="Input size in pixels; 0: the backbone's own.")
]

# What the models of a run settle, and what is of use with them alone.
FIXED_BY_MODEL = (
    "backbone", "fps", "pool", "grid", "frames_per_window", "window_mode", "window_stride", "crop",
    "resampler", "precision",
)  # fmt: skip
OF_MODEL = ("representation", "segments", "segment_tokens", "training")
PARAMETER = re.compile(r"\bpatches\.(\w+)(=)?")
OF_PROJECT = ("inputs", "shard")  # all that counts without a video
SIZES = ("backbone", "frames_per_window", "crop", "window_stride")  # named alike in `patches`


def named_config(chosen: dict[str, Any], **more: Any) -> PatchesConfig:
    """Return the settings for named videos, from the options given or their defaults."""
    options = {name: chosen[name] for name in SIZES}
    options |= {"fps": tubelet_of(chosen["backbone"]) * chosen["fps"], "window_scope": "take"}
    options |= {"grid": 1 if chosen["pool"] == "mean" else chosen["grid"]}
    return checked({**options, "window_mode": chosen["window_mode"], **more})


def checked(options: dict[str, Any]) -> PatchesConfig:
    """Return the settings; an impossible value is an error of one line."""
    try:
        return PatchesConfig.model_validate(options)
    except ValidationError as error:
        raise InputError(first_fault(error, PatchesConfig, "patches")) from None


def is_given(context: typer.Context, name: str) -> bool:
    """Return whether an option is on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"  # click's, or typer's copy of it


def refuse_idle_options(context: typer.Context) -> None:
    """Raise for the first option that would have no effect."""
    for name, why in _idle(context):
        if is_given(context, name):
            raise InputError(f"{context.info_name}: --{name.replace('_', '-')} {why}")


@contextmanager
def errors_name_options(context: typer.Context) -> Iterator[None]:
    """Make errors name --grid, not `patches.grid`: named videos have no params.yaml."""
    try:
        yield
    except InputError as error:
        raise InputError(_with_options(str(error), set(context.params))) from None


def _with_options(text: str, options: Collection[str]) -> str:
    """Return the text with options in place of their parameters."""

    def option(found: re.Match[str]) -> str:
        if found[1] not in options:
            return found[0]
        return f"--{found[1].replace('_', '-')}{' ' if found[2] else ''}"

    return PARAMETER.sub(option, text)


def _idle(context: typer.Context) -> Iterator[tuple[str, str]]:
    """Yield options without effect beside the others, and why."""
    chosen = context.params
    if not chosen["inputs"]:
        why = "is for videos that are named; takes of the project follow params.yaml"
        yield from ((name, why) for name in chosen if name not in OF_PROJECT)
        return
    model = chosen["model"]
    if model is None:
        yield from ((name, "needs --model") for name in OF_MODEL)
    else:
        yield from ((name, f"is fixed by {model}; leave it out") for name in FIXED_BY_MODEL)
    if chosen["pool"] == "mean":
        yield "grid", "needs --pool none"
    if chosen["window_mode"] == "block":
        yield "window_stride", "needs --window-mode trailing"


# `pjepa plan`: what features for videos will cost.


@app.command(rich_help_panel=FEATURES)
def plan(
    context: typer.Context,
    inputs: Inputs = None,
    backbone: BackboneOption = BACKBONE,
    model: ModelOption = None,
    fps: FpsOption = 4.0,
    pool: PoolOption = "mean",
    grid: GridOption = 0,
    frames_per_window: FramesOption = 64,
    window_mode: ModeOption = "block",
    window_stride: StrideOption = 1,
    crop: CropOption = 0,
    per_hour: Annotated[
        list[str] | None,
        typer.Option(
            metavar="BACKBONE",
            help="Instead, print GB per hour of video, and hours of video per GPU hour.",
        ),
    ] = None,
) -> None:
    """Estimate tokens, disk space and GPU hours. Exit code 1 if the disk is too small.

    With videos: the cost of `pjepa extract` with the same options. Without:
    the cost of the stage `patches` as params.yaml sets it. Also says whether
    decoding on this machine (`machine.workers` threads) or a GPU is the limit.
    `--per-hour released` shows the released V-JEPA 2.1 variants side by side.
    """
    if per_hour:
        with one_line_errors():
            typer.echo(hourly_table(per_hour, fps, crop))
        return
    from pjepa.patches.cost import check_disk, extraction_plan, free_bytes
    from pjepa.storage.work import work_root
    from pjepa.ui.console import print_table

    with one_line_errors():
        refuse_idle_options(context)
        config = planned_config(context, model)
        found = extraction_plan(planned_takes(inputs or []), config)
        what = "`pjepa extract`" if inputs else "stage `patches`"
        title = f"{what}: {config.backbone}, {config.fps:g} frames/s, {config.window_mode} windows"
        decoding = decoding_hours(inputs or [], found.hours, config)
        print_table(title, ["", ""], found.rows(free_bytes(work_root()), decoding))
        check_disk(found.stored, work_root())


def planned_config(context: typer.Context, model: Path | None) -> PatchesConfig:
    """Return the settings of `extract` for named videos; without any, those of params.yaml."""
    if not context.params["inputs"]:
        return read_section(PatchesConfig, "patches")
    if model is None:
        with errors_name_options(context):
            return named_config(context.params)
    from pjepa.live.models import Wanted, live_windows
    from pjepa.pooler.stored import load_pooler

    trained = load_pooler(model / "pooler", "cpu").facts
    return live_windows(trained.patches, trained.window, Wanted(model, as_trained=True))[0]


def hourly_table(backbones: list[str], tokens_fps: float, crop: int) -> str:
    """Return what an hour of video costs with each backbone, as a Markdown table."""
    from pjepa.core.text import markdown_table
    from pjepa.patches.cost import hourly_costs
    from pjepa.patches.vjepa21 import VARIANTS

    released = [name for name, variant in VARIANTS.items() if variant.file]
    rows = []
    for name in released if backbones == ["released"] else backbones:
        given = {"backbone": name, "fps": tokens_fps * tubelet_of(name), "crop": crop}
        config = read_section(PatchesConfig, "patches", {"patches": given})
        rows.append((name, hourly_costs(config, grids=(0, 4, 1))))
    lines = [[name, *(_three_digits(value) for value in found.values())] for name, found in rows]
    return markdown_table(["backbone", *rows[0][1]], lines)


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def decoding_hours(inputs: list[Path], hours: float, config: PatchesConfig) -> float | None:
    """Return hours to read so many hours of video with `machine.workers` threads of this machine.

    Measured on one video; None if there is none here that can be read.
    """
    from pjepa.core.tables import read_videos
    from pjepa.patches.cost import decoding_share
    from pjepa.tools.own_videos import own_videos

    videos = own_videos(inputs) if inputs else read_videos(paths.VIDEOS_TABLE)
    for video in videos:
        with suppress(InputError, OSError):
            return hours * decoding_share(video.path, config) / config.workers
    return None


def planned_takes(inputs: list[Path]) -> list[tuple[float, Any]]:
    """Return seconds and segments of every take, of the given videos or of the project."""
    from pjepa.core.tables import read_boundaries, read_videos
    from pjepa.tools.own_videos import own_videos
    from pjepa.video.index import expected_seconds

    if inputs:
        known = []
        for video in own_videos(inputs):
            try:
                seconds = expected_seconds(video.path)
            except InputError as error:
                say(f"plan: left out: {error}")
                continue
            known.append((seconds, None))
        if not known:
            raise InputError("plan: no video can be read, see above")
        return known
    boundaries = read_boundaries(paths.BOUNDARIES_TABLE)
    return [(r.duration_s, boundaries.get(r.take_id)) for r in read_videos(paths.VIDEOS_TABLE)]


# The option `--reader`, the same for every command that reads video.

READER_HELP = "Video decoder; auto is PyAV."
ReaderChoice = Annotated[ReaderName, typer.Option("--reader", help=READER_HELP)]
ProjectReader = Annotated[
    ReaderName | None, typer.Option("--reader", help=f"{READER_HELP} Default: patches.reader.")
]


def reading_config(reader: ReaderName | None) -> PatchesConfig:
    """Return how this project reads videos, with the reader asked for."""
    from pjepa.patches.config import PatchesConfig

    config = read_section(PatchesConfig, "patches")
    return config.model_copy(update={"reader": reader or config.reader})


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
    with one_line_errors(), errors_name_options(context):
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
    from pjepa.tools.starter import as_options, missing_weights

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

    def pooling(patches: NDArray[Any], jumps_s: Sequence[float]) -> NDArray[Any]:
        return np.asarray(patches[:, 0] if pool == "mean" else patches)

    return Output(target.out, target.form, pooling, pool, target.dtype)


def trained(
    wanted: Wanted, representation: Representation, machine: dict[str, Any], target: Target
) -> tuple[PatchesConfig, BackboneFacts, Output]:
    """Return settings, backbone and output of a run's models; report where they differ."""
    from functools import partial

    import torch

    from pjepa.live.models import (
        check_weights,
        features_info,
        load_feature_models,
        model_facts,
        patch_features,
    )
    from pjepa.patches.backbone import backbone_facts
    from pjepa.storage.reading import fingerprint
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
    from pjepa.patches.local import chosen_executor
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
    from pjepa.core.tables import read_boundaries, read_videos
    from pjepa.patches.extract import extract as extract_missing
    from pjepa.patches.local import chosen_executor
    from pjepa.storage.work import work_root

    config = read_section(PatchesConfig, "patches")
    rows = read_videos(paths.VIDEOS_TABLE)[part[0] :: part[1]]
    if not rows:
        say(f"extract: shard {part[0]}/{part[1]} holds no take")
        return
    boundaries = read_boundaries(paths.BOUNDARIES_TABLE)
    store = work_root() / "store" / "patches"
    found = extract_missing(rows, boundaries, config, store, chosen_executor(config))
    say(f"extract: {len(found.files)} takes in the store, {found.encoded} encoded now")
