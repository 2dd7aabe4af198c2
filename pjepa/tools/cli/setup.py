"""Setting up: `pjepa preset`, `fetch`, `convert`, `doctor` and `selftest`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

import pjepa
from pjepa.core.machine import resolved_device
from pjepa.tools.cli.app import DATA, DEVICE, MACHINE, RUN, app, one_line_errors
from pjepa.tools.cli.targets import check_target
from pjepa.tools.presets import preset_text, replaced_params
from pjepa.ui.console import InputError, say


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
    from pjepa.tools.fetch import CATALOGUE, obtained

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
    from pjepa.tools.fetch import CATALOGUE, local_files
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
        from pjepa.tools.convert import converted_encoder

        check_target(out, "port", Path(checkpoint))
        typer.echo(converted_encoder(checkpoint, backbone, out))


def _converted_head(checkpoint: Path, out: Path | None) -> str:
    """Write a released head as a probe and return what was written."""
    from pjepa.core.tables import write_classes
    from pjepa.storage.writing import check_new_folder
    from pjepa.tools.convert import head_classes, released_head

    if out is None:
        raise InputError("a probe's head needs --out FOLDER; an encoder needs --backbone")
    check_new_folder(out)
    probe = released_head(checkpoint)
    probe.save(out)
    write_classes(out / "classes.json", head_classes(probe))
    return f"{out}: {probe.details['fit']} head of {checkpoint.name}"


# `pjepa selftest` and `pjepa doctor`: what this machine computes, and what it has.


@app.command(rich_help_panel=MACHINE)
def selftest(
    device: Annotated[str, typer.Option(help=DEVICE, callback=resolved_device)] = "auto",
    width: Annotated[int, typer.Option(min=8, help="Width of the timed model.")] = 256,
    heads: Annotated[int, typer.Option(min=1, help="Attention heads of the timed model.")] = 4,
    tokens: Annotated[int, typer.Option(min=45, help="Tokens of the timed take.")] = 2048,
) -> None:
    """Check that a device computes what the CPU computes, time it, and print JSON."""
    from pjepa.tools.selftest import run_selftest

    with one_line_errors():
        report = run_selftest(device, width, heads, tokens)
    typer.echo(json.dumps(report, indent=2))
    if not report["ok"]:
        say(
            "selftest: this device does NOT compute what the CPU computes; please open an issue "
            "with the JSON above"
        )
        raise typer.Exit(1)
    say(
        "selftest: this device computes what the CPU computes; paste the JSON into an issue, so "
        "that its speed is known"
    )


@app.command(rich_help_panel=MACHINE)
def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, to paste into an issue.")
    ] = False,
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Instead, compare every stored file with its hash."),
    ] = False,
) -> None:
    """Check packages, codecs, devices, folders, params.yaml and weights. Exit code 1 on failure."""
    from pjepa.tools.doctor import findings

    if verify:
        _verify()
        return
    results = []
    for result in findings():
        results.append(result)
        if not as_json:
            typer.echo(result)
    broken = sum(result.state == "broken" for result in results)
    if as_json:
        listed = [vars(result) for result in results]
        report = {"pjepa": pjepa.__version__, "broken": broken, "findings": listed}
        typer.echo(json.dumps(report, indent=2))
    if broken:
        typer.echo(f"{broken} broken", err=True)
        raise typer.Exit(1)


def _verify() -> None:
    """Print one line per damaged file; exit code 1 if there is one."""
    from pjepa.tools.stored import damage

    with one_line_errors():
        lines = list(damage())
    for line in lines:
        typer.echo(f"damaged {line}")
    if lines:
        raise typer.Exit(1)
