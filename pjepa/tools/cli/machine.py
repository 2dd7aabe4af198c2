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
    say(
        "selftest: this device computes what the CPU computes; paste the JSON into an issue, so "
        "that its speed is known"
        if report["ok"]
        else "selftest: this device does NOT compute what the CPU computes; please open an issue "
        "with the JSON above"
    )
    if not report["ok"]:
        raise typer.Exit(1)


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
    from dataclasses import asdict

    from pjepa.tools.doctor import findings

    broken, found = 0, []
    if verify:
        _verify()
        return
    for finding in findings():
        broken += finding.state == "broken"
        if as_json:
            found.append(asdict(finding))
        else:
            typer.echo(finding)
    if as_json:
        typer.echo(
            json.dumps({"pjepa": pjepa.__version__, "broken": broken, "findings": found}, indent=2)
        )
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
