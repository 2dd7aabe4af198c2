"""`pjepa fetch` and `pjepa convert`: weights, encoders and archives on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pjepa.tools.cli.app import DATA, app, one_line_errors
from pjepa.tools.cli.targets import check_target
from pjepa.ui.errors import InputError


@app.command(rich_help_panel=DATA)
def fetch(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Names from pjepa fetch --list.")
    ] = None,
    show: Annotated[
        bool, typer.Option("--list", help="List what can be downloaded and what is already here.")
    ] = False,
) -> None:
    """Download weights, encoders and feature archives; resume, and check every file."""
    if show or not names:
        _print_catalogue()
        return
    from pjepa.tools.fetch.catalogue import CATALOGUE
    from pjepa.tools.fetch.obtain import obtained

    failed = False
    for name in names:
        try:
            for path in obtained(name):
                typer.echo(f"{name}: {path}")
            if name in CATALOGUE and CATALOGUE[name].kind == "archive":
                typer.echo(f"{name}: to be used under {CATALOGUE[name].terms} licence", err=True)
        except InputError as error:
            typer.echo(f"error: {error}", err=True)
            failed = True
    if failed:
        raise typer.Exit(1)


def _print_catalogue() -> None:
    from pjepa.tools.fetch.catalogue import CATALOGUE
    from pjepa.tools.fetch.obtain import local_files
    from pjepa.ui.terminal import print_table

    rows = []
    for name, item in CATALOGUE.items():
        size = f"{item.gigabytes:.2f}" if item.gigabytes else ""
        here = "here" if local_files(item) else "by hand" if item.by_hand else ""
        rows.append([f"{name}: {item.what}", item.kind, size, item.terms, here])
    print_table("pjepa fetch NAME", ["name", "kind", "GB", "licence", ""], rows)


@app.command(rich_help_panel=DATA)
def convert(
    checkpoint: Annotated[
        str, typer.Argument(metavar="CHECKPOINT", help="A released .pt file, or the name of one.")
    ],
    backbone: Annotated[
        str | None,
        typer.Option(help="Encoder variant, vjepa2_1_vit_..._384; leave out for a probe head."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write; default: the cache. A probe head needs a folder."),
    ] = None,
) -> None:
    """Convert released weights: a V-JEPA encoder to safetensors, or a probe head to a folder.

    The encoder alone is a fifth of the released file and keeps its weights
    id, so stored features stay valid. A converted head is what `pjepa predict`
    and `pjepa stream` load as `model/` of a cell; if the release names no
    classes, put their names into its classes.json.
    """
    with one_line_errors():
        if backbone is None:
            typer.echo(_converted_head(Path(checkpoint), out))
            return
        _convert_encoder(checkpoint, backbone, out)


def _convert_encoder(checkpoint: str, backbone: str, out: Path | None) -> None:
    from pjepa.tools.fetch.port import written_port

    check_target(out, "port", Path(checkpoint))
    port = written_port(checkpoint, backbone, out)
    typer.echo(f"{port.path}: {port.bytes / 1e9:.2f} GB of {port.source_bytes / 1e9:.2f} GB")
    typer.echo(f"weights id {port.weights_id}")


def _converted_head(checkpoint: Path, out: Path | None) -> str:
    """Write a released head as a probe and return what was written."""
    from pjepa.core.tables import write_classes
    from pjepa.live.targets import check_new_folder
    from pjepa.tools.released_heads import head_classes, released_head

    if out is None:
        raise InputError("a probe's head needs --out FOLDER; an encoder needs --backbone")
    check_new_folder(out)
    probe = released_head(checkpoint)
    probe.save(out)
    write_classes(out / "classes.json", head_classes(probe))
    return f"{out}: {probe.details['fit']} head of {checkpoint.name}"
