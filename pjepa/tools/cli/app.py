"""The `pjepa` command itself: its options, the order of its help, and how its tools end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

import pjepa
from pjepa.core.section import ReaderName, SegmentChoice
from pjepa.tools.stage import one_line_errors as one_line_errors  # for all commands
from pjepa.ui.console import QUIET, VERBOSE, InputError

if TYPE_CHECKING:
    from pjepa.patches.config import PatchesConfig

# The panels of `pjepa --help`, by what a person wants.
FEATURES = "Features and labels for video"
DATA = "Data and weights"
RUN = "Run"
LOOK = "Look at results"
SHARE = "Share"
MACHINE = "This machine"
ORDER = (
    "extract", "predict", "stream", "plan",
    "data", "fetch", "convert",
    "preset",
    "summary", "table", "compare", "study", "verify", "questions",
    "export", "publish",
    "doctor", "selftest",
)  # fmt: skip


class Commands(TyperGroup):
    """The commands in the order of their panels; Ctrl-C ends them in one line."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names as `--help` shows them; one that ORDER lacks comes last."""
        return sorted(self.commands, key=lambda name: (*ORDER, name).index(name))

    def invoke(self, ctx: Any) -> Any:
        """Run a command; after an interrupt, say what to do next."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            typer.echo("interrupted; run the same command again to resume", err=True)
            raise typer.Exit(130) from None


DEVICE = "auto, cpu, cuda, cuda:1, ..."  # help of every --device

app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"pjepa {pjepa.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", "-q", envvar=QUIET, help="Hide progress and notes; show errors only."
        ),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", envvar=VERBOSE, help="Show the traceback of an error."),
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Turn long how-to videos into features that know the procedure so far (P-JEPA).

    `dvc repro` runs the pipeline; these are the tools around it.

    A take is one video; a token is the feature vector of one time step (a
    quarter second). A probe is a small model fitted on frozen features; a
    cell is one probe on one kind of features.
    """
    for name, asked in ((QUIET, quiet), (VERBOSE, verbose)):
        if asked:
            os.environ[name] = "1"  # for worker processes too


def warn_of_stale_results() -> None:
    """Say on stderr when parameters, or data that DVC cannot see, have changed since the run."""
    from pjepa.core.section import read_section
    from pjepa.storage.roots import data_root
    from pjepa.takes.config import DataConfig
    from pjepa.takes.sources.scan import stale_list
    from pjepa.tools.paths import source_list
    from pjepa.tools.stored import changed_since_run

    try:
        changed = changed_since_run()
        config = read_section(DataConfig, "data")
        stale = stale_list(config, data_root(), source_list(config.source))
    except InputError:
        return  # the tool itself says what is wrong
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        text = f"results were made with other parameters: {changed[0]}{more}; run `dvc repro`"
        typer.echo(f"warning: {text}", err=True)
    if stale:
        typer.echo(f"warning: results are older than the data: {stale}, then `dvc repro`", err=True)


# The option `--reader`, the same for every command that reads video.
READER_HELP = "Video decoder; auto is PyAV."
ReaderChoice = Annotated[ReaderName, typer.Option("--reader", help=READER_HELP)]
ProjectReader = Annotated[
    ReaderName | None, typer.Option("--reader", help=f"{READER_HELP} Default: patches.reader.")
]


def reading_config(reader: ReaderName | None) -> PatchesConfig:
    """Return how this project reads videos, with the reader asked for."""
    from pjepa.core.section import read_section
    from pjepa.patches.config import PatchesConfig

    config = read_section(PatchesConfig, "patches")
    return config.model_copy(update={"reader": reader or config.reader})


SegmentsOption = Annotated[
    SegmentChoice,
    typer.Option(
        help="Where segments end: as in training, where features change, or at a fixed length."
    ),
]
SegmentTokensOption = Annotated[
    int | None,
    typer.Option("--segment-tokens", min=1, help="Tokens per segment (found: on average)."),
]
TrainingOption = Annotated[
    Path,
    typer.Option(help="Token stream of the training data; sets the threshold of found segments."),
]
