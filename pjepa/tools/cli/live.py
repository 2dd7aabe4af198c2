"""`pjepa stream` and `pjepa predict`: labels for video, as it arrives or from files."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pjepa.core.machine import resolved_device
from pjepa.core.tables import MAX_GAP_S
from pjepa.live.source import PIPE, STDOUT, Pipe
from pjepa.storage.writing import check_new_file, check_new_folder
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
from pjepa.tools.cli.targets import TargetKind, check_target
from pjepa.ui.console import InputError, say

if TYPE_CHECKING:
    from pjepa.live.predict import PredictOutcome
    from pjepa.select.familiar import Familiar

MIN_STEP_S = 1.0  # shorter ones are of no use to people; better on the demo too (docs/predict.md)
LOADING = "loading models"


class LabelFormat(StrEnum):  # typer takes no list of a Literal
    """Files of other tools."""

    VTT = "vtt"
    EAF = "eaf"
    LABELSTUDIO = "labelstudio"


ModelFolder = Annotated[
    Path, typer.Option(help="Models of a run: a folder with pooler/ and pjepa/.")
]
ProbeFolder = Annotated[
    Path | None,
    typer.Option(
        "--probe",
        help="A fitted probe: a folder of results/probe. Default: attentive-pjepa, else "
        "linear-pjepa.",
    ),
]
Device = Annotated[str, typer.Option(help=DEVICE, callback=resolved_device)]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads of the models; default: all.")]
USUAL = (paths.cell("attentive", "pjepa"), paths.cell("linear", "pjepa"))


@app.command(rich_help_panel=FEATURES)
def stream(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A video file, or - to read video from a pipe.")
    ],
    model: ModelFolder = paths.ENCODER.parent,
    probe: ProbeFolder = None,
    jsonl: Annotated[
        Path | None,
        typer.Option(help="Write one JSON line per decided step to this file; - for stdout."),
    ] = None,
    state: Annotated[
        Path | None, typer.Option(help="Save the state in this folder, and resume from it.")
    ] = None,
    live: Annotated[
        bool | None,
        typer.Option(
            "--live/--every-frame",
            help="Drop frames rather than fall behind (default for a pipe), or wait (for a file).",
        ),
    ] = None,
    horizon: Annotated[
        int | None, typer.Option(min=0, help="Past tokens to keep; default: all.")
    ] = None,
    window: Annotated[
        int | None, typer.Option(min=1, help="Tokens per window; default: at most 2 s.")
    ] = None,
    as_trained: Annotated[
        bool, typer.Option("--as-trained", help="Use windows as long as in training.")
    ] = False,
    segments: SegmentsOption = "auto",
    segment_tokens: SegmentTokensOption = None,
    training: TrainingOption = paths.STREAM,
    stall: Annotated[
        float, typer.Option(min=0.1, help="Stop after this many seconds without a frame.")
    ] = 30,
    reader: ReaderChoice = "auto",
    max_gap: Annotated[
        float,
        typer.Option(min=0.1, help="Start a new recording after a gap of this many seconds."),
    ] = MAX_GAP_S,
    device: Device = "auto",
    threads: Threads = None,
    summary: Annotated[
        Path | None, typer.Option(help="Write counts and latencies to this JSON file.")
    ] = None,
) -> None:
    """Label video as it arrives; print a step as soon as it can no longer change."""
    with one_line_errors():
        targets: dict[TargetKind, Path | None] = {
            "steps": None if str(jsonl) == STDOUT else jsonl,
            "summary": summary,
            "state": state and state / "state.json",
        }
        used = [Path(source)]
        for kind, file in targets.items():
            if file is not None:
                check_new_file(file)
                check_target(file, kind, *used)
                used.append(file)
        pipe = _opened(source)  # before the imports, for which a camera does not wait
        from pjepa.live.models import LiveOptions, load_models
        from pjepa.live.session import Options, Session
        from pjepa.storage.writing import write_json

        _set_threads(threads)
        models = load_models(
            LiveOptions(
                model, probe or usual_cell(), window, as_trained, segments,
                segment_tokens, training, paths.TAKES_TABLE, device, reader,
            )
        )  # fmt: skip
        live = pipe is not None and not pipe.is_file if live is None else live
        options = Options(live, horizon, stall, jsonl, state, max_gap_s=max_gap)
        session = Session(models, source, options, pipe)
        counts = session.run()
        if summary is not None:
            write_json(summary, counts)
    _say_end(counts)
    if counts["status"].startswith(("stalled", "failed")):
        raise typer.Exit(1)


@app.command(rich_help_panel=FEATURES)
def predict(
    videos: Annotated[
        list[Path], typer.Argument(metavar="VIDEO|FOLDER", help="Video files, or folders of them.")
    ],
    out: Annotated[Path, typer.Option(help="Folder to write, or to resume in.")],
    model: ModelFolder = paths.ENCODER.parent,
    probe: ProbeFolder = None,
    formats: Annotated[
        list[LabelFormat] | None,
        typer.Option("--format", help="Also write this format; may be repeated."),
    ] = None,
    min_step: Annotated[
        float,
        typer.Option(min=0, help="Shortest step, in seconds; 0: no limit."),
    ] = MIN_STEP_S,
    smooth: Annotated[
        float, typer.Option(min=0, help="First average the probabilities over this many seconds.")
    ] = 0.0,
    segments: SegmentsOption = "auto",
    segment_tokens: SegmentTokensOption = None,
    training: TrainingOption = paths.STREAM,
    reader: ReaderChoice = "auto",
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Label new videos: write their steps (segments.csv), scores and a timeline for each.

    Each video is written when it is done; run the same command again to resume.
    """
    with one_line_errors():
        from pjepa.live.predict import is_ours
        from pjepa.tools.own_videos import own_videos

        chosen = own_videos(videos)
        if not any(path.is_file() for path in chosen.values()):
            _check_file(next(iter(chosen.values())))
        if not is_ours(out):
            check_new_folder(out)
        say(LOADING)
        from pjepa.live.models import LiveOptions, load_models
        from pjepa.live.predict import predict_videos
        from pjepa.live.steps import Cleaning

        _set_threads(threads)
        models = load_models(
            LiveOptions(
                model, probe or usual_cell(), None, True, segments, segment_tokens, training,
                paths.TAKES_TABLE, device, reader,
            )
        )  # fmt: skip
        for note in models.notes:
            say(f"note: {note}")
        kinds = [kind.value for kind in formats or []]
        done = predict_videos(models, chosen, out, kinds, Cleaning(smooth, min_step))
        _say_predicted(out, done, models.familiar)


def _say_predicted(out: Path, done: PredictOutcome, familiar: Familiar | None) -> None:
    """Report counts, videos unlike the training ones, and unreadable videos."""
    typer.echo(f"{out}: {len(done.notes)} videos, {done.steps} steps")
    if done.resumed:
        say(f"{done.resumed} of them were done already")
    for line in unfamiliar_lines(done, familiar):
        say(line)
    for name, reason in done.failed.items():
        say(f"  {name}: {reason}")
    if done.failed:
        raise InputError(f"predict: {len(done.failed)} videos cannot be read, listed above")


def unfamiliar_lines(done: PredictOutcome, familiar: Familiar | None) -> Iterator[str]:
    """Return lines on videos further from the training stream than any training take."""
    if familiar is None:
        yield (
            "note: these models do not store what training videos are like, so videos unlike them "
            "cannot be reported"
        )
        return
    apart = {name: note["distance"] for name, note in done.notes.items()}
    far = {name: d for name, d in apart.items() if d is not None and d > familiar.limit}
    if far:
        yield (
            f"warning: {len(far)} of {len(apart)} videos are unlike the {familiar.takes} training "
            f"takes, and their steps may mean nothing (distance; training at most "
            f"{familiar.limit:.2f}):"
        )
    yield from (f"  {name}: {d:.2f}" for name, d in far.items())


def _set_threads(threads: int | None) -> None:
    if threads is not None:
        import torch

        torch.set_num_threads(threads)


def _opened(source: str) -> Pipe | None:
    """Return the pipe, read from now on; a missing file is found before models are loaded."""
    if source != PIPE:
        _check_file(Path(source))
    elif sys.stdin.isatty():
        raise InputError("standard input is a terminal; pipe video into it (docs/live.md)")
    say(LOADING)
    return Pipe() if source == PIPE else None


def _check_file(video: Path) -> None:
    if not video.is_file():
        raise InputError(f"{video}: no such video; give a file, or - for a pipe")


def _say_end(counts: dict[str, Any]) -> None:
    """Print one line on stderr: how it ended, how fast it was, what was lost."""
    parts = [
        f"{counts['source']}: {counts['status']}",
        f"{counts['video_s']:.1f} s of video in {counts['wall_s']:.1f} s",
        f"{counts['frames']} frames, {counts['dropped']} dropped",
    ]
    for kind, row in counts["latency_s"].items():
        times = ", ".join(f"{name} {1e3 * value:.0f} ms" for name, value in row.items())
        parts.append(f"{kind} latency {times}")
    typer.echo("; ".join(parts), err=True)


def usual_cell() -> Path:
    """Return the first usual cell that has a fitted probe or was run; else the paper's."""
    fitted = [cell for cell in USUAL if (cell / "model").is_dir()]
    return next(iter([*fitted, *(cell for cell in USUAL if cell.is_dir())]), USUAL[0])
