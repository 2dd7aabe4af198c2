"""`pjepa data`: look at a data source before anything is computed on it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from pjepa.core.section import read_section
from pjepa.pooler.config import PoolerKind
from pjepa.storage.roots import DATA_ROOT, LOCAL, data_root
from pjepa.storage.writing import atomic_file
from pjepa.takes.annotations.text_files import SHOWN, Note
from pjepa.takes.config import DataConfig
from pjepa.takes.sources.scan import write_scan
from pjepa.tools import paths
from pjepa.tools.cli.app import DATA, ProjectReader, app, one_line_errors, reading_config
from pjepa.tools.cli.targets import check_target
from pjepa.tools.params import Params
from pjepa.tools.presets import params_text, text_difference
from pjepa.tools.starter import (
    LABELS,
    PRESET,
    as_settings,
    labelled_videos,
    missing_weights,
    other_annotations,
    place_of,
    starter_csv,
    starter_params,
)
from pjepa.ui.console import InputError

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
    from pjepa.storage.reading import read_json
    from pjepa.storage.roots import data_root
    from pjepa.takes.sources.scan import named_config, stale_list, write_scan
    from pjepa.tools.params import check_params
    from pjepa.tools.paths import source_list

    with one_line_errors():
        config = named_config(check_params().data, name)
        path = source_list(config.source)
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
    from pjepa.storage.roots import data_root
    from pjepa.storage.writing import write_json
    from pjepa.takes.annotations.text_files import SHOWN
    from pjepa.takes.source import checked_source
    from pjepa.takes.sources.registry import open_source
    from pjepa.tools.check import COLUMNS, broken_features, check_source, damaged_videos, unlisted
    from pjepa.tools.params import check_params
    from pjepa.ui.console import print_table

    with one_line_errors():
        check_target(json_file, "check", paths.PARAMS)
        params = check_params()
        config = params.data.model_copy(update={"missing": "skip"})
        source = checked_source(open_source(config, data_root()))
        found = check_source(source, params)
        found.findings.extend(unlisted(params, data_root()))
        if decode:
            found.findings.extend(damaged_videos(source, reading_config(reader)))
            found.findings.extend(broken_features(source, params.tokens))
        if json_file is not None:
            table = [dict(zip(COLUMNS, row, strict=True)) for row in found.rows]
            findings = [vars(finding) for finding in found.findings]
            write_json(json_file, {"table": table, "findings": findings, "ok": found.ok})
    title = f"source {config.source}, tokens at {params.tokens.fps:g} per second"
    print_table(title, COLUMNS, found.rows)
    for finding in found.findings:
        typer.echo(finding.line(None if every else SHOWN))
    if not every and any(len(finding.names) > SHOWN for finding in found.findings):
        typer.echo("--all names the rest")
    typer.echo("ok" if found.ok else "not ok: fix the errors")
    if not found.ok:
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
    from pjepa.tools.look import draw_contact_sheet, found_take, picture_name, segment_tiles

    with one_line_errors():
        found = found_take(take)
        tiles, more = segment_tiles(found.segments, found.row.duration_s)
        path = out or Path(picture_name(take))
        check_target(path, "sheet", *([found.row.path] if found.row.video else []))
        draw_contact_sheet(found.row, tiles, path, reading_config(reader))
    note = f"; {more} segments are not shown" if more else ""
    if found.note:
        typer.echo(found.note, err=True)
    count = f"{len(tiles)} of {len(found.segments)} segments{note}"
    typer.echo(f"{path}: {count if found.segments else f'{len(tiles)} frames, no segments'}")


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

    with one_line_errors():
        for line in begin(folder, dry_run, pooler):
            typer.echo(line)


# `pjepa data init`: the files with which own videos begin.


def begin(folder: Path, dry_run: bool, pooler: PoolerKind | None = None) -> Iterator[str]:
    """Write what is not there yet; yield what was written and what to do next."""
    place = place_of(folder, data_root())
    videos = place.root / place.path
    params = starter_params(place.path, pooler)
    labelled = labelled_videos(videos, params)
    if params.pooler.kind == "action" and not labelled:
        raise InputError(f"{videos / LABELS}: no labels, which the action pooler is trained on")
    yield from _begin_root(folder, place.root, dry_run)
    yield from _begin_labels(videos / LABELS, dry_run)
    after = params_text(params)
    before = paths.PARAMS.read_text()
    yield text_difference(before, after).rstrip() or f"{paths.PARAMS}: nothing to change"
    if not dry_run:
        with atomic_file(paths.PARAMS) as partial:
            partial.write_text(after)
        config = read_section(DataConfig, "data")
        listed = paths.source_list(config.source)
        write_scan(config, data_root(), listed)
        yield f"{listed}: written; commit it with {paths.PARAMS}"
    yield from _next(folder, videos, params, labelled)


def _next(folder: Path, videos: Path, params: Params, labelled: int) -> Iterator[str]:
    """Yield what a run would give now, what labels would add, and what is missing for it."""
    run = "next: `pjepa data check`, then `dvc repro`:"
    if labelled:
        yield f"{run} features, probes on {labelled} labelled videos, and `pjepa predict` for more"
        if params.pooler.kind == "mean":
            yield (
                f"offer: `pjepa data init {quote(str(folder))} --pooler action` trains the paper's "
                "pooler on the labels; the mean needs none"
            )
    else:
        yield f"{run} features and an encoder; without labels no probe, so no `pjepa predict`"
        yield f"for steps: fill in start, end and label in {LABELS}, then `pjepa data scan`"
        if others := other_annotations(videos):
            note = Note(f"{len(others)} files look like annotations", tuple(others))
            yield f"{note.line(SHOWN)}; data.folder.labels can name them (docs/own-videos.md)"
    if missing := missing_weights(params.patches):
        yield f"weights: {missing.removeprefix('patches.checkpoint: ')}"
        yield (
            f"or try every step first, untrained, in minutes: `dvc exp run {as_settings()}`; "
            f"`pjepa preset {PRESET} --keep data` goes back"
        )


def _begin_root(folder: Path, root: Path, dry_run: bool) -> Iterator[str]:
    if root.resolve() == data_root().resolve():
        return
    if os.environ.get(DATA_ROOT) or LOCAL.exists():
        raise InputError(
            f"{folder}: not under the data root {data_root()}; move it there, or change "
            f"{DATA_ROOT} or {LOCAL}"
        )
    yield f"{LOCAL}: data_root: {root} (this machine's own, not in Git)"
    if not dry_run:
        LOCAL.write_text(f"data_root: {root}\n")


def _begin_labels(path: Path, dry_run: bool) -> Iterator[str]:
    if path.exists():
        yield f"{path}: exists already; left unchanged"
        return
    yield f"{path}: a row per video; add start, end and label"
    if not dry_run:
        with atomic_file(path) as partial:
            partial.write_text(starter_csv(path.parent))
