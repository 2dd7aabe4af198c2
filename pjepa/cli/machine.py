"""`pjepa selftest`: what this machine can do."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from pjepa.cli.app import app, one_line_errors


@app.command()
def selftest(
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu",
    width: Annotated[int, typer.Option(min=8, help="Width of the model that is timed.")] = 256,
    heads: Annotated[int, typer.Option(min=1)] = 4,
    tokens: Annotated[int, typer.Option(min=45, help="Tokens of the take that is timed.")] = 2048,
) -> None:
    """Check that a device computes what the CPU computes, and time it; prints JSON."""
    from pjepa.selftest import run_selftest

    with one_line_errors():
        report = run_selftest(device, width, heads, tokens)
    typer.echo(json.dumps(report, indent=2))
    if not report["ok"]:
        raise typer.Exit(1)
