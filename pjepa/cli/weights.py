"""`pjepa fetch`, `pjepa weights` and `pjepa doctor`: what has to be on the machine first."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pjepa.cli.app import app, one_line_errors
from pjepa.errors import InputError

weights = typer.Typer(no_args_is_help=True, help="Backbone weights: what is here, ports, costs.")
app.add_typer(weights, name="weights")


@app.command()
def fetch(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="See `pjepa fetch --list`.")
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="What there is, and what is here.")] = False,
) -> None:
    """Download weights, encoders and archives: resumed, checked, into the cache or data root."""
    if show or not names:
        _print_catalogue()
        return
    from pjepa.fetch.catalogue import CATALOGUE
    from pjepa.fetch.obtain import obtained

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
    from pjepa.fetch.catalogue import CATALOGUE
    from pjepa.fetch.obtain import local_files
    from pjepa.report.terminal import print_table

    rows = []
    for name, item in CATALOGUE.items():
        size = f"{item.gigabytes:.2f}" if item.gigabytes else ""
        here = "here" if local_files(item) else "by hand" if item.by_hand else ""
        rows.append([f"{name}: {item.what}", item.kind, size, item.terms, here])
    print_table("pjepa fetch NAME", ["name", "kind", "GB", "licence", ""], rows)


@weights.command()
def convert(
    checkpoint: Annotated[str, typer.Argument(help="An official .pt: a path, or a known name.")],
    backbone: Annotated[str, typer.Option(help="The variant it is, vjepa2_1_vit_..._384.")],
    out: Annotated[
        Path | None, typer.Option(help="Default: the cache, under the variant's name.")
    ] = None,
) -> None:
    """Write the encoder alone as safetensors: a fifth of the file, the same weights id."""
    from pjepa.backbones.port import written_port

    with one_line_errors():
        port = written_port(checkpoint, backbone, out)
    typer.echo(f"{port.path}: {port.bytes / 1e9:.2f} GB of {port.source_bytes / 1e9:.2f} GB")
    typer.echo(f"weights id {port.weights_id}")


@weights.command()
def cost(
    backbone: Annotated[
        list[str] | None, typer.Option(help="May be repeated; default: the released variants.")
    ] = None,
    tokens_fps: Annotated[float, typer.Option(help="Tokens per second.")] = 4.0,
    window: Annotated[int, typer.Option(min=1, help="Frames per window.")] = 64,
    crop: Annotated[int, typer.Option(min=0, help="Pixels a side; 0: the model's own.")] = 0,
) -> None:
    """What an hour of video costs: GB on disk by grid, and hours of video per hour of a GPU."""
    from pjepa.backbones.cost import hourly_costs
    from pjepa.backbones.vjepa21 import VARIANTS
    from pjepa.config.patches import PatchesConfig, tubelet_of
    from pjepa.config.section import read_section
    from pjepa.report.text import markdown_table

    names = backbone or [name for name, variant in VARIANTS.items() if variant.file]
    with one_line_errors():
        rows = []
        for name in names:
            given = {"backbone": name, "fps": tokens_fps * tubelet_of(name), "crop": crop}
            values = {"patches": given | {"frames_per_window": window}}
            config = read_section(PatchesConfig, "patches", values)
            rows.append((name, hourly_costs(config, grids=(0, 4, 1))))
    header = ["backbone", *rows[0][1]]
    lines = [[name, *(_three_digits(value) for value in found.values())] for name, found in rows]
    typer.echo(markdown_table(header, lines))


def _three_digits(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


@app.command()
def doctor() -> None:
    """Try the installation, codecs, devices, folders and weights; exit code 1 if one is broken."""
    from pjepa.doctor import findings

    broken = 0
    for finding in findings():
        typer.echo(finding)
        broken += finding.state == "broken"
    if broken:
        typer.echo(f"{broken} broken", err=True)
        raise typer.Exit(1)
