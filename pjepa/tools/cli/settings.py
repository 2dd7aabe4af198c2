"""`pjepa preset`: writes params.yaml."""

from __future__ import annotations

from typing import Annotated

import typer

from pjepa.core.files import atomic_file
from pjepa.tools import paths
from pjepa.tools.cli.app import RUN, app, one_line_errors
from pjepa.tools.migrate import migrated_text
from pjepa.tools.presets import preset_text, text_difference
from pjepa.ui.errors import InputError


@app.command(rich_help_panel=RUN)
def preset(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A file of presets/ without .yaml.")
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Keep this section of the current params.yaml; may be repeated."),
    ] = None,
    migrate: Annotated[
        bool,
        typer.Option("--migrate", help="Instead, rewrite the params.yaml of an older version."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the diff; write nothing.")
    ] = False,
) -> None:
    """Write params.yaml from a preset (the defaults and what it changes); show the diff."""
    with one_line_errors():
        if migrate == (name is not None):
            raise InputError("give the name of a preset, or --migrate")
        after = migrated_text() if name is None else preset_text(name, keep or [])
        before = ""
        if paths.PARAMS.exists():  # only to be shown: what is damaged is replaced
            before = paths.PARAMS.read_text(encoding="utf-8", errors="replace")
        if before == after:
            typer.echo(f"{paths.PARAMS}: nothing to change")
            return
        typer.echo(text_difference(before, after), nl=False)
        if not dry_run:
            with atomic_file(paths.PARAMS) as partial:
                partial.write_text(after)
