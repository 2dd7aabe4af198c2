"""The `pjepa` command itself, and how its tools end on bad input."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer

from pjepa.errors import InputError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Dense, procedure-aware features for long video. `dvc repro` runs the pipeline.",
)


def warn_of_stale_data() -> None:
    """Says on stderr when data has changed since it was listed: `dvc repro` cannot know."""
    from pjepa.config.data import DataConfig
    from pjepa.config.section import read_section
    from pjepa.roots import data_root
    from pjepa.takes.scan import stale_list

    try:
        stale = stale_list(read_section(DataConfig, "data"), data_root())
    except InputError:
        return  # the tool itself says what is wrong
    if stale:
        typer.echo(f"warning: results are older than the data: {stale}, then `dvc repro`", err=True)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Bad input, and a disk that refuses, end in one line on stderr and exit code 1."""
    try:
        yield
    except InputError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    except BrokenPipeError:  # `| head` has seen enough; typer ends quietly
        raise
    except OSError as error:
        where = "" if error.filename is None else f"{error.filename}: "
        typer.echo(f"error: {where}{error.strerror or error}", err=True)
        raise typer.Exit(1) from None
