"""`pjepa preset`: writes params.yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pjepa.tools.cli.app import DATA, RUN, app, one_line_errors
from pjepa.tools.cli.targets import check_target
from pjepa.tools.presets import preset_text, replaced_params
from pjepa.ui.console import InputError


@app.command(rich_help_panel=RUN)
def preset(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A file of presets/ without .yaml.")],
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Keep this section of the current params.yaml; may be repeated."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the diff; write nothing.")
    ] = False,
) -> None:
    """Write params.yaml from a preset (the defaults and what it changes); show the diff."""
    with one_line_errors():
        typer.echo(replaced_params(preset_text(name, keep or []), dry_run), nl=False)


# `pjepa fetch` and `pjepa convert`: weights, encoders and archives on this machine.


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
    from pjepa.tools.catalogue import CATALOGUE
    from pjepa.tools.fetch import obtained

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
    from pjepa.tools.catalogue import CATALOGUE
    from pjepa.tools.fetch import local_files
    from pjepa.ui.console import print_table

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
        from pjepa.tools.fetch import converted_encoder

        check_target(out, "port", Path(checkpoint))
        typer.echo(converted_encoder(checkpoint, backbone, out))


def _converted_head(checkpoint: Path, out: Path | None) -> str:
    """Write a released head as a probe and return what was written."""
    from pjepa.core.tables import write_classes
    from pjepa.storage.writing import check_new_folder
    from pjepa.tools.heads import head_classes, released_head

    if out is None:
        raise InputError("a probe's head needs --out FOLDER; an encoder needs --backbone")
    check_new_folder(out)
    probe = released_head(checkpoint)
    probe.save(out)
    write_classes(out / "classes.json", head_classes(probe))
    return f"{out}: {probe.details['fit']} head of {checkpoint.name}"
