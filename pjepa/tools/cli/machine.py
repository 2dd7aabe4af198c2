"""`pjepa doctor` and `pjepa selftest`: what this machine has, and what it computes."""

from __future__ import annotations

import json
from typing import Annotated

import typer

import pjepa
from pjepa.core.machine import resolved_device
from pjepa.tools.cli.app import DEVICE, MACHINE, app, one_line_errors
from pjepa.ui.console import say


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
