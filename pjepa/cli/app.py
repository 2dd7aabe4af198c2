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


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Bad input ends in one line on stderr and exit code 1, as in the stages."""
    try:
        yield
    except InputError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
