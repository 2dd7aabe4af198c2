"""`pjepa data`: look at a data source before anything is computed on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pjepa.cli.app import app, one_line_errors
from pjepa.errors import InputError

data = typer.Typer(no_args_is_help=True, help="Look at takes before anything is computed on them.")
app.add_typer(data, name="data")


@data.command()
def scan(
    name: Annotated[
        str | None, typer.Argument(help="A source of params.yaml; data.source by default.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit code 1 if the list is stale.")
    ] = False,
) -> None:
    """List a source's files in data/sources/NAME.json, which Git tracks and `takes` depends on.

    DVC sees data outside the project through this list alone: scan again after every change.
    """
    from pjepa.config.params import check_params
    from pjepa.roots import data_root
    from pjepa.takes.scan import named_config, stale_list, write_scan
    from pjepa.work import read_json

    with one_line_errors():
        config = named_config(check_params().data, name)
        if check:
            if stale := stale_list(config, data_root()):
                raise InputError(stale)
            return
        path = write_scan(config, data_root())
    typer.echo(f"{path}: {len(read_json(path)['files'])} files")


@data.command()
def check(
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write everything to this file.")
    ] = None,
    decode: Annotated[
        bool, typer.Option("--decode", help="Also decode every video, to find damage inside.")
    ] = False,
) -> None:
    """Read the whole source and say what is in it and what is wrong; exit code 1 on errors."""
    from pjepa.config.params import check_params
    from pjepa.report.terminal import print_table
    from pjepa.roots import data_root
    from pjepa.takes.check import COLUMNS, check_source, damaged_videos, unlisted
    from pjepa.takes.registry import open_source
    from pjepa.takes.source import checked_source
    from pjepa.work import write_json

    with one_line_errors():
        params = check_params()
        config = params.data.model_copy(update={"missing": "skip"})
        source = checked_source(open_source(config, data_root()))
        found = check_source(source, params)
        found.findings.extend(unlisted(params, data_root()))
        found.findings.extend(damaged_videos(source) if decode else ())
        if json_file is not None:
            table = [dict(zip(COLUMNS, row, strict=True)) for row in found.rows]
            findings = [vars(finding) for finding in found.findings]
            write_json(json_file, {"table": table, "findings": findings, "ok": found.ok})
    title = f"source {config.source}, tokens at {params.tokens.fps:g} per second"
    print_table(title, COLUMNS, found.rows)
    for finding in found.findings:
        typer.echo(f"{finding.level}: {finding.text}")
    typer.echo("ok" if found.ok else "not ok: put the errors right")
    if not found.ok:
        raise typer.Exit(1)


@data.command()
def view(
    take: Annotated[str, typer.Argument(help="A take's id, as in data/takes/takes.parquet.")],
    out: Annotated[Path | None, typer.Option(help="The picture; TAKE.png by default.")] = None,
) -> None:
    """Draw a contact sheet: the middle frame of every segment with its label and time."""
    from pjepa.report.contact_sheet import draw_contact_sheet, segment_tiles
    from pjepa.takes.look import found_take, picture_name

    with one_line_errors():
        found = found_take(take)
        tiles, more = segment_tiles(found.segments, found.row.duration_s)
        path = out or Path(picture_name(take))
        draw_contact_sheet(found.row, tiles, path)
    note = f"; {more} segments are not shown" if more else ""
    if found.note:
        typer.echo(found.note, err=True)
    typer.echo(f"{path}: {len(tiles)} of {len(found.segments)} segments{note}")


@data.command()
def init(
    folder: Annotated[Path, typer.Argument(help="A folder of videos.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Write nothing.")] = False,
) -> None:
    """Begin with own videos: a CSV to fill in, params.yaml, and the list of files."""
    from pjepa.cli.starting import begin

    with one_line_errors():
        for line in begin(folder, dry_run):
            typer.echo(line)
