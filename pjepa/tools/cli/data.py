"""`pjepa data`: look at a data source before anything is computed on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pjepa.pooler.config import PoolerKind
from pjepa.storage.reading import read_json
from pjepa.storage.roots import data_root
from pjepa.tools import paths
from pjepa.tools.cli.app import DATA, ProjectReader, app, one_line_errors, reading_config
from pjepa.tools.cli.targets import check_target
from pjepa.tools.params import check_params
from pjepa.ui.console import InputError, print_table

data = typer.Typer(
    no_args_is_help=True, help="Start with your own videos; list, check and view data."
)
app.add_typer(data, name="data", rich_help_panel=DATA)


@data.command()
def scan(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A data source of params.yaml; default: data.source."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit code 1 if the list is out of date.")
    ] = False,
) -> None:
    """List the files of a data source in data/sources/NAME.json, which Git tracks.

    DVC sees data outside the project only through this list: scan again
    after every change.
    """
    from pjepa.takes.sources.scan import named_config, stale_list, write_scan

    with one_line_errors():
        config = named_config(check_params().data, name)
        path = paths.source_list(config.source)
        if check:
            if stale := stale_list(config, data_root(), path):
                raise InputError(stale)
            return
        write_scan(config, data_root(), path)
    typer.echo(f"{path}: {len(read_json(path)['files'])} files")


@data.command()
def check(
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write everything to this file.")
    ] = None,
    decode: Annotated[
        bool,
        typer.Option(
            "--decode",
            help="Also decode every video and read all frame features, to find damage inside.",
        ),
    ] = False,
    every: Annotated[
        bool, typer.Option("--all", help="Name every take, file and label, not just three.")
    ] = False,
    reader: ProjectReader = None,
) -> None:
    """Read all of the data; print what is in it and what is wrong. Exit code 1 on errors."""
    from pjepa.storage.writing import write_json
    from pjepa.takes.annotations.text_files import SHOWN
    from pjepa.takes.source import checked_source
    from pjepa.takes.sources.registry import open_source
    from pjepa.tools.check import COLUMNS, broken_features, check_source, damaged_videos, unlisted

    with one_line_errors():
        check_target(json_file, "check", paths.PARAMS)
        params = check_params()
        config = params.data.model_copy(update={"missing": "skip"})
        source = checked_source(open_source(config, data_root()))
        rows, findings = check_source(source, params)
        findings += unlisted(params, data_root())
        if decode:
            findings += damaged_videos(source, reading_config(reader))
            findings += broken_features(source, params.tokens)
        ok = not any(finding.level == "error" for finding in findings)
        if json_file is not None:
            table = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
            listed = [vars(finding) for finding in findings]
            write_json(json_file, {"table": table, "findings": listed, "ok": ok})
    title = f"source {config.source}, tokens at {params.tokens.fps:g} per second"
    print_table(title, COLUMNS, rows)
    for finding in findings:
        typer.echo(finding.line(None if every else SHOWN))
    if not every and any(len(finding.names) > SHOWN for finding in findings):
        typer.echo("--all names the rest")
    typer.echo("ok" if ok else "not ok: fix the errors")
    if not ok:
        raise typer.Exit(1)


@data.command()
def view(
    take: Annotated[
        str, typer.Argument(metavar="TAKE", help="A take's id, as in data/takes/takes.parquet.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="The picture to write; default: TAKE.png.")
    ] = None,
    reader: ProjectReader = None,
) -> None:
    """Draw a contact sheet of a take: the middle frame of every segment, its label and time."""
    from pjepa.tools.look import draw_contact_sheet, picture_name, segment_tiles, shown_take

    with one_line_errors():
        shown = shown_take(take)
        tiles, more = segment_tiles(shown.segments, shown.row.duration_s)
        path = out or Path(picture_name(take))
        check_target(path, "sheet", *([shown.row.path] if shown.row.video else []))
        draw_contact_sheet(shown.row, tiles, path, reading_config(reader))
    note = f"; {more} segments are not shown" if more else ""
    if shown.note:
        typer.echo(shown.note, err=True)
    count = f"{len(tiles)} of {len(shown.segments)} segments{note}"
    typer.echo(f"{path}: {count if shown.segments else f'{len(tiles)} frames, no segments'}")


@data.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of videos.")],
    pooler: Annotated[
        PoolerKind | None,
        typer.Option(
            help="mean (default) needs no labels; action, the paper's, is trained on them."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be written; write nothing.")
    ] = False,
) -> None:
    """Start with your own videos: write a CSV for labels, params.yaml and the list of files.

    Applies the preset own-videos. A params.yaml that already reads this
    folder is kept.
    """
    from pjepa.tools.starter import begin

    with one_line_errors():
        for line in begin(folder, pooler, dry_run):
            typer.echo(line)
