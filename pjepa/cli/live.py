"""`pjepa stream` and `pjepa predict`: labels for video, as it arrives or from files."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from pjepa import paths
from pjepa.cli.app import app, one_line_errors
from pjepa.errors import InputError
from pjepa.live.pipe import PIPE, STDOUT, Pipe
from pjepa.live.targets import check_file, check_new_folder
from pjepa.progress import say

LOADING = "loading models"


class Segments(StrEnum):
    """Where segments come from when nobody annotates them."""

    AUTO = "auto"
    FOUND = "found"
    FIXED = "fixed"


class Format(StrEnum):
    """Files of other tools."""

    VTT = "vtt"
    EAF = "eaf"
    LABELSTUDIO = "labelstudio"


ModelFolder = Annotated[Path, typer.Option(help="The folder with pooler/ and pjepa/.")]
ProbeFolder = Annotated[
    Path | None,
    typer.Option(
        "--probe",
        help="A cell, results/probe/PROBE-REPRESENTATION; by default attentive-pjepa, or "
        "linear-pjepa where that was not run.",
    ),
]
SegmentRule = Annotated[
    Segments, typer.Option(help="Segments: the encoder's own, found by change, or fixed.")
]
SegmentTokens = Annotated[
    int | None, typer.Option("--segment-tokens", min=1, help="Tokens of a segment (mean, fixed).")
]
Training = Annotated[
    Path, typer.Option(help="The token stream that measures where segments change.")
]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads of the models; all by default.")]
USUAL = (paths.cell("attentive", "pjepa"), paths.cell("linear", "pjepa"))


@app.command()
def stream(
    source: Annotated[str, typer.Argument(help="A video file, or - for a pipe of video.")],
    model: ModelFolder = paths.ENCODER.parent,
    probe: ProbeFolder = None,
    jsonl: Annotated[
        Path | None,
        typer.Option(help="Write one JSON line per decided step to this file; - for stdout."),
    ] = None,
    state: Annotated[
        Path | None, typer.Option(help="Save the state in this folder, and go on from it.")
    ] = None,
    live: Annotated[
        bool | None,
        typer.Option(
            "--live/--every-frame",
            help="Drop frames rather than fall behind; the default for a pipe, not for a file.",
        ),
    ] = None,
    horizon: Annotated[
        int | None, typer.Option(min=0, help="Tokens of the past that are kept; all by default.")
    ] = None,
    window: Annotated[
        int | None, typer.Option(min=1, help="Tokens of a window; 2 s or less by default.")
    ] = None,
    as_trained: Annotated[
        bool, typer.Option("--as-trained", help="Windows as long as in training.")
    ] = False,
    segments: SegmentRule = Segments.AUTO,
    segment_tokens: SegmentTokens = None,
    training: Training = paths.STREAM,
    stall: Annotated[
        float, typer.Option(min=0.1, help="Seconds without a frame that end it.")
    ] = 30,
    device: Device = "cpu",
    threads: Threads = None,
    summary: Annotated[
        Path | None, typer.Option(help="Write counts and latencies to this JSON file.")
    ] = None,
) -> None:
    """Label video as it arrives: steps as soon as they are decided, exactly as offline."""
    with one_line_errors():
        targets = [jsonl, summary, None if state is None else state / "state.json"]
        for file in targets:
            if file is not None and str(file) != STDOUT:
                check_file(file)
        pipe = _opened(source)  # before the imports, for which a camera does not wait
        from pjepa.live.models import Wanted, load_models
        from pjepa.live.session import Options, Session
        from pjepa.work import write_json

        _set_threads(threads)
        models = load_models(
            Wanted(
                model, probe or usual_cell(), window, as_trained, segments.value,
                segment_tokens, training, paths.TAKES_TABLE, device,
            )
        )  # fmt: skip
        live = pipe is not None and not pipe.is_file if live is None else live
        session = Session(models, source, Options(live, horizon, stall, jsonl, state), pipe)
        found = session.run()
        if summary is not None:
            write_json(summary, found)
    _say_end(found)
    if found["status"].startswith(("stalled", "failed")):
        raise typer.Exit(1)


@app.command()
def predict(
    videos: Annotated[list[Path], typer.Argument(metavar="VIDEO", help="Video files.")],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    model: ModelFolder = paths.ENCODER.parent,
    probe: ProbeFolder = None,
    formats: Annotated[
        list[Format] | None, typer.Option("--format", help="Also write; may be repeated.")
    ] = None,
    segments: SegmentRule = Segments.AUTO,
    segment_tokens: SegmentTokens = None,
    training: Training = paths.STREAM,
    device: Device = "cpu",
    threads: Threads = None,
) -> None:
    """Label unannotated videos: segments.csv, scores.parquet, a timeline and other formats."""
    with one_line_errors():
        for video in videos:
            _check_file(video)
        check_new_folder(out)
        say(LOADING)
        from pjepa.live.models import Wanted, load_models
        from pjepa.live.predict import predict_videos

        _set_threads(threads)
        models = load_models(
            Wanted(
                model, probe or usual_cell(), None, True, segments.value, segment_tokens, training,
                paths.TAKES_TABLE, device,
            )
        )  # fmt: skip
        for note in models.notes:
            say(f"note: {note}")
        names = [chosen.value for chosen in formats or []]
        found = predict_videos(models, videos, out, names)
    steps = sum(len(one.labelled(models.classes).steps) for one in found)
    typer.echo(f"{out}: {len(found)} videos, {steps} steps")


def _set_threads(threads: int | None) -> None:
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def _opened(source: str) -> Pipe | None:
    """The pipe, which is read from now on; a file is looked for before models are loaded."""
    if source != PIPE:
        _check_file(Path(source))
    elif sys.stdin.isatty():
        raise InputError("standard input is a terminal; pipe video into it (docs/live.md)")
    say(LOADING)
    return Pipe() if source == PIPE else None


def _check_file(video: Path) -> None:
    if not video.is_file():
        raise InputError(f"{video}: no such video; give a file, or - for a pipe")


def _say_end(found: dict[str, Any]) -> None:
    """One line on stderr: how it ended, how fast it was, what was lost."""
    parts = [
        f"{found['source']}: {found['status']}",
        f"{found['video_s']:.1f} s of video in {found['wall_s']:.1f} s",
        f"{found['frames']} frames, {found['dropped']} dropped",
    ]
    for kind, row in found["latency_s"].items():
        times = ", ".join(f"{name} {1e3 * value:.0f} ms" for name, value in row.items())
        parts.append(f"{kind} latency {times}")
    typer.echo("; ".join(parts), err=True)


def usual_cell() -> Path:
    """The first of the usual cells that has a fitted probe; the paper's if there is none."""
    return next((cell for cell in USUAL if (cell / "model").is_dir()), USUAL[0])
