"""`pjepa export`: representations as folders that other tools read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from pjepa import paths
from pjepa.cli.app import app, one_line_errors
from pjepa.errors import InputError

LAYOUT_HELP = "mstcn (MS-TCN, ASFormer, LTContext on Breakfast), fact, ltcontext or npy."


@app.command()
def export(
    layout: Annotated[Literal["mstcn", "fact", "ltcontext", "npy"], typer.Option(help=LAYOUT_HELP)],
    representation: Annotated[
        str, typer.Option(help="A folder of data/representations; `random/0` for one draw.")
    ] = "pjepa",
    out: Annotated[Path | None, typer.Option(help="exports/<layout>-<representation>.")] = None,
    unlabelled: Annotated[
        Literal["drop", "class"],
        typer.Option(help="Tokens without a label: left out, or a class of their own."),
    ] = "drop",
) -> None:
    """Write features, labels, splits and classes the way other tools read them."""
    from pjepa.features.export_layouts import write_export
    from pjepa.features.export_takes import exported_takes
    from pjepa.streams.store import StreamReader, read_labels
    from pjepa.takes.manifest import read_classes, read_takes

    with one_line_errors():
        stream = StreamReader(representation_stream(representation))
        classes = read_classes(paths.CLASSES)
        takes = read_takes(paths.TAKES_TABLE)
        found = exported_takes(stream, read_labels(paths.LABELS), takes, classes, unlabelled)
        target = out or Path("exports") / f"{layout}-{representation.replace('/', '-')}"
        done = write_export(target, layout, found, stream.info, classes, unlabelled)
    counts = ", ".join(
        f"{len(done.split(split))} {split}"
        for split in ("train", "val", "test")
        if done.split(split)
    )
    typer.echo(f"{target}: {len(done.takes)} takes ({counts or 'none labelled'}), "
               f"{stream.info.width} channels, {stream.info.fps:g} frames a second")  # fmt: skip
    if done.left_out:
        typer.echo(f"{done.left_out} tokens without a label were left out, so times jump there "
                   "(takes.csv); --unlabelled class keeps them")  # fmt: skip


def representation_stream(name: str) -> Path:
    """The one stream of a representation, or of a draw of it; others are named."""
    known = {
        path.parent.relative_to(paths.REPRESENTATIONS).as_posix(): path
        for folder in sorted(paths.REPRESENTATIONS.glob("*"))
        for path in paths.representation_streams(folder)
    }
    if name not in known:
        there = ", ".join(known) or "none; run `dvc repro`"
        raise InputError(f"--representation {name}: not in {paths.REPRESENTATIONS}; there: {there}")
    return known[name]
