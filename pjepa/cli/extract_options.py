"""Which options of `pjepa extract` go together: none is ignored in silence."""

from __future__ import annotations

from collections.abc import Iterator

import typer

from pjepa.errors import InputError

# What the models of a run settle, and what is of use with them alone.
SETTLED = (
    "backbone", "fps", "pool", "grid", "frames_per_window", "window_mode", "window_stride", "crop",
    "resampler", "precision",
)  # fmt: skip
OF_MODEL = ("representation", "segments", "segment_tokens", "training")
OF_PROJECT = ("inputs", "shard")  # all that counts without a video


def is_given(context: typer.Context, name: str) -> bool:
    """Whether an option stands on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"  # click's, or typer's copy of it


def refuse_idle_options(context: typer.Context) -> None:
    """An error for the first option that would have no effect."""
    for name, why in _idle(context):
        if is_given(context, name):
            raise InputError(f"extract: --{name.replace('_', '-')} {why}")


def _idle(context: typer.Context) -> Iterator[tuple[str, str]]:
    """Options without effect beside the others, and why."""
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
