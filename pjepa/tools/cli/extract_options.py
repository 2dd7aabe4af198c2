"""The options that `pjepa extract` and `pjepa plan` share, and which of them go together.

None is ignored in silence.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from pydantic import ValidationError

from pjepa.core.choices import WindowMode
from pjepa.core.section import one_line
from pjepa.patches.config import PatchesConfig, tubelet_of
from pjepa.tools import paths
from pjepa.ui.errors import InputError

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
SETTLED = (
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
        fault = one_line(error, PatchesConfig, "patches").removeprefix(f"{paths.PARAMS}: ")
        raise InputError(fault) from None


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
def spoken_as_options(context: typer.Context) -> Iterator[None]:
    """Make errors name --grid, not `patches.grid`: named videos have no params.yaml."""
    try:
        yield
    except InputError as error:
        raise InputError(as_options(str(error), set(context.params))) from None


def as_options(text: str, options: Collection[str]) -> str:
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
        yield from ((name, f"is settled by {model}; leave it out") for name in SETTLED)
    if chosen["pool"] == "mean":
        yield "grid", "needs --pool none"
    if chosen["window_mode"] == "block":
        yield "window_stride", "needs --window-mode trailing"
