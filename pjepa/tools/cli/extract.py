"""`pjepa extract` and `pjepa plan`: features for videos, and what they will cost."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import ValidationError

from pjepa.core.machine import resolved_device
from pjepa.core.section import FeatureFormat, Resampler, WindowMode, first_fault, read_section
from pjepa.patches.config import PatchesConfig, tubelet_of
from pjepa.tools import paths
from pjepa.tools.cli.app import (
    DEVICE,
    FEATURES,
    ReaderChoice,
    SegmentsOption,
    SegmentTokensOption,
    TrainingOption,
    app,
    one_line_errors,
)
from pjepa.ui.console import InputError, say

if TYPE_CHECKING:
    from pjepa.patches.backbone import BackboneFacts
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

# Options that a trained model fixes, those of use with one alone, and those of the machine.
FIXED_BY_MODEL = (
    "backbone", "fps", "pool", "grid", "frames_per_window", "window_mode", "window_stride", "crop",
    "resampler", "precision",
)  # fmt: skip
OF_MODEL = ("representation", "segments", "segment_tokens", "training")
OF_MACHINE = ("reader", "on_error", "batch_windows", "workers", "threads", "device")
OF_PROJECT = ("inputs", "shard")  # all that counts without a video


def named_config(chosen: Mapping[str, Any]) -> PatchesConfig:
    """Return the settings for named videos, from the options given or their defaults."""
    same = {name: chosen[name] for name in PatchesConfig.model_fields if name in chosen}
    fps = tubelet_of(chosen["backbone"]) * chosen["fps"]
    grid = 1 if chosen["pool"] == "mean" else chosen["grid"]
    return checked({**same, "fps": fps, "grid": grid, "window_scope": "take"})


def checked(values: Mapping[str, Any]) -> PatchesConfig:
    """Return the settings; an impossible value is an error of one line."""
    try:
        return PatchesConfig.model_validate(values)
    except ValidationError as error:
        fault = first_fault(error, PatchesConfig, "patches")
        raise InputError(fault.removeprefix("patches: ")) from None


def is_given(context: typer.Context, name: str) -> bool:
    """Return whether an option is on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"  # click's, or typer's copy of it


def refuse_idle_options(context: typer.Context) -> None:
    """Raise for the first option that would have no effect beside the others."""
    chosen, idle = context.params, {}
    if chosen["pool"] == "mean":
        idle["grid"] = "needs --pool none"
    if chosen["window_mode"] == "block":
        idle["window_stride"] = "needs --window-mode trailing"
    if not chosen["inputs"]:
        why = "is for videos that are named; takes of the project follow params.yaml"
        idle = {name: why for name in chosen if name not in OF_PROJECT}
    elif chosen["model"] is None:
        idle |= dict.fromkeys(OF_MODEL, "needs --model")
    else:
        idle |= dict.fromkeys(FIXED_BY_MODEL, f"is fixed by {chosen['model']}; leave it out")
    for name, why in idle.items():
        if is_given(context, name):
            raise InputError(f"{context.info_name}: --{name.replace('_', '-')} {why}")


@contextmanager
def errors_name_options(context: typer.Context) -> Iterator[None]:
    """Make errors name --grid, not `patches.grid`: named videos have no params.yaml."""

    def option(parameter: re.Match[str]) -> str:
        return f"--{parameter[1].replace('_', '-')}{' ' if parameter[2] else ''}"

    try:
        yield
    except InputError as error:
        parameter = rf"\bpatches\.({'|'.join(context.params)})\b(=)?"
        raise InputError(re.sub(parameter, option, str(error))) from None


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
    with one_line_errors():
        if per_hour:
            typer.echo(hourly_table(per_hour, fps, crop))
            return
        refuse_idle_options(context)
        if not inputs:
            print_plan("stage `patches`", project_takes(), read_section(PatchesConfig, "patches"))
            return
        with errors_name_options(context):
            config = named_config(context.params) if model is None else trained_config(model)
        print_plan("`pjepa extract`", named_takes(inputs), config)


def trained_config(model: Path) -> PatchesConfig:
    """Return the settings of videos with the models of a run."""
    from pjepa.live.models import LiveOptions, live_windows
    from pjepa.pooler.stored import load_pooler

    trained = load_pooler(model / "pooler", "cpu").facts
    return live_windows(trained.patches, trained.window, LiveOptions(model, as_trained=True))[0]


PlannedTakes = list[tuple[Path | None, float, Any]]  # video, seconds, segments


def project_takes() -> PlannedTakes:
    """Return the takes of this project."""
    from pjepa.core.tables import read_boundaries, read_videos

    segments = read_boundaries(paths.BOUNDARIES_TABLE)
    rows = read_videos(paths.VIDEOS_TABLE)
    return [
        (row.path if row.video else None, row.duration_s, segments.get(row.take_id)) for row in rows
    ]


def named_takes(inputs: list[Path]) -> PlannedTakes:
    """Return the named videos that can be read, and name the others."""
    from pjepa.tools.own_videos import own_videos
    from pjepa.video.index import expected_seconds

    takes: PlannedTakes = []
    for video in own_videos(inputs).values():
        try:
            takes.append((video, expected_seconds(video), None))
        except InputError as error:
            say(f"plan: left out: {error}")
    if not takes:
        raise InputError("plan: no video can be read, see above")
    return takes


def print_plan(what: str, takes: PlannedTakes, config: PatchesConfig) -> None:
    """Print the cost; decoding is measured on the first video that can be read here."""
    from pjepa.patches.cost import check_disk, decoding_share, extraction_plan, free_bytes
    from pjepa.storage.work import work_root
    from pjepa.ui.console import print_table

    cost, decoding = extraction_plan([take[1:] for take in takes], config), None
    for video in (take[0] for take in takes if take[0]):
        with suppress(InputError, OSError):
            decoding = cost.hours * decoding_share(video, config) / config.workers
            break
    title = f"{what}: {config.backbone}, {config.fps:g} frames/s, {config.window_mode} windows"
    print_table(title, ["", ""], cost.rows(free_bytes(work_root()), decoding))
    check_disk(cost.stored, work_root())


def hourly_table(backbones: list[str], tokens_fps: float, crop: int) -> str:
    """Return what an hour of video costs with each backbone, as a Markdown table."""
    from pjepa.core.text import markdown_table
    from pjepa.patches.cost import hourly_costs
    from pjepa.patches.vjepa21 import VARIANTS

    if backbones == ["released"]:
        backbones = [name for name, variant in VARIANTS.items() if variant.file]
    rows, header = [], []
    for name in backbones:
        config = checked({"backbone": name, "fps": tokens_fps * tubelet_of(name), "crop": crop})
        costs = hourly_costs(config, grids=(0, 4, 1))
        header = ["backbone", *costs]
        rows.append([name, *(f"{c:,.0f}" if c >= 100 else f"{c:.3g}" for c in costs.values())])
    return markdown_table(header, rows)


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
        shard_index = shard_of(shard)
        refuse_idle_options(context)
        if not inputs:
            extract_takes(shard_index)
            return
        from pjepa.tools.own_videos import Output

        output = partial(Output, out, form, dtype)
        with errors_name_options(context):
            prepare = of_backbone if model is None else of_run
            extract_videos(inputs, shard_index, *prepare(context, output))


Prepared = tuple[PatchesConfig, "BackboneFacts", "Output"]


def of_backbone(context: typer.Context, output: Callable[..., Output]) -> Prepared:
    """Return what writes the output of a backbone alone: patches averaged, or all of them."""
    import numpy as np

    from pjepa.patches.backbone import backbone_facts
    from pjepa.tools.starter import as_options, missing_weights

    config, pool = named_config(context.params), context.params["pool"]
    if missing := missing_weights(config):
        raise InputError(f"{missing}; or try it untrained, in minutes on a CPU: {as_options()}")
    if context.params["form"] == "parquet" and pool == "none":
        reason = "--format parquet holds one token per row"
        raise InputError(f"{reason}; use --pool mean, or safetensors")
    pooling = (lambda p, jumps: p[:, 0]) if pool == "mean" else (lambda p, jumps: np.asarray(p))
    return config, backbone_facts(config), output(pooling, pool)


def of_run(context: typer.Context, output: Callable[..., Output]) -> Prepared:
    """Return what writes the features of a run's models; report where they differ from training."""
    import torch

    from pjepa.live.models import (
        LiveOptions,
        check_weights,
        features_info,
        load_feature_models,
        model_facts,
        patch_features,
    )
    from pjepa.patches.backbone import backbone_facts
    from pjepa.storage.reading import fingerprint

    chosen, model = context.params, context.params["model"]
    torch.set_num_threads(chosen["threads"])
    options = LiveOptions(
        model, as_trained=True, segments=chosen["segments"], tokens=chosen["segment_tokens"],
        training=chosen["training"], takes=paths.TAKES_TABLE, device=chosen["device"],
    )  # fmt: skip
    stack = load_feature_models(options, chosen["representation"])
    here = {name: chosen[name] for name in OF_MACHINE}
    if is_given(context, "checkpoint"):
        here["checkpoint"] = chosen["checkpoint"]
    config = checked({**stack.patches.model_dump(), **here})
    facts = backbone_facts(config)
    check_weights(facts, stack.pooler.facts.patches)
    for note in stack.notes:
        say(f"note: {note}")
    models = model_facts(stack)
    spread = None if stack.rule.found is None else stack.rule.found.std.tolist()
    made_by = f"{chosen['representation']} {fingerprint(models, spread)}"
    pooling = partial(patch_features, stack)
    return config, facts, output(pooling, made_by, features_info(stack), models)


def shard_of(text: str) -> tuple[int, int]:
    """Return (i, n) of `i/n`, 0 <= i < n."""
    try:
        number, of = (int(part) for part in text.split("/"))
    except ValueError:
        raise InputError(f"--shard {text}: expected two numbers such as 0/8") from None
    if not 0 <= number < of:
        raise InputError(f"--shard {text}: expected 0/{of} to {max(of - 1, 0)}/{of}")
    return number, of


def extract_videos(
    inputs: list[Path], shard: tuple[int, int], config: PatchesConfig, facts: BackboneFacts,
    output: Output,
) -> None:  # fmt: skip
    """Extract features of named videos; exit code 1 if one fails and may not be skipped."""
    from pjepa.patches.local import chosen_executor
    from pjepa.tools.own_videos import extract_own, own_videos

    videos = dict(list(own_videos(inputs).items())[shard[0] :: shard[1]])
    failed = extract_own(videos, config, facts, output, chosen_executor(config))
    say(f"extract: {len(videos) - len(failed)} of {len(videos)} videos are in {output.folder}")
    for name, reason in failed.items():
        say(f"  {name}: {reason}")
    if failed and (config.on_error != "skip" or len(failed) == len(videos)):
        raise InputError(f"extract: {len(failed)} videos cannot be read, listed above")


def extract_takes(shard: tuple[int, int]) -> None:
    """Fill the project's store with a shard of its takes; `dvc repro patches` then only links."""
    from pjepa.core.tables import read_boundaries, read_videos
    from pjepa.patches.extract import extract as extract_missing
    from pjepa.patches.local import chosen_executor
    from pjepa.storage.work import work_root

    config = read_section(PatchesConfig, "patches")
    rows = read_videos(paths.VIDEOS_TABLE)[shard[0] :: shard[1]]
    if not rows:
        say(f"extract: shard {shard[0]}/{shard[1]} holds no take")
        return
    boundaries = read_boundaries(paths.BOUNDARIES_TABLE)
    store = work_root() / "store" / "patches"
    done = extract_missing(rows, boundaries, config, store, chosen_executor(config))
    say(f"extract: {len(done.files)} takes in the store, {done.encoded} encoded now")
