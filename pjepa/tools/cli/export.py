"""`pjepa export`: representations as folders that other tools read."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pjepa.tools import paths
from pjepa.tools.cli.app import SHARE, app, one_line_errors, warn_of_stale_results
from pjepa.tools.cli.targets import check_publication
from pjepa.ui.console import InputError

if TYPE_CHECKING:
    from pjepa.model.encoder import ProcedureEncoder

LAYOUT_HELP = "mstcn (MS-TCN, ASFormer, LTContext on Breakfast), fact, ltcontext or npy."


@app.command(rich_help_panel=SHARE)
def export(
    layout: Annotated[Literal["mstcn", "fact", "ltcontext", "npy"], typer.Option(help=LAYOUT_HELP)],
    representation: Annotated[
        str, typer.Option(help="A folder of data/representations; random/0 is one draw.")
    ] = "pjepa",
    out: Annotated[
        Path | None, typer.Option(help="Folder to write; default: one below exports/.")
    ] = None,
    unlabelled: Annotated[
        Literal["drop", "class"],
        typer.Option(help="Leave out tokens without a label, or make them a class."),
    ] = "drop",
) -> None:
    """Write features, labels, splits and classes as folders that other tools read."""
    from pjepa.core.tables import read_classes, read_takes
    from pjepa.streams.stream import StreamReader, read_labels
    from pjepa.tools.export import exported_takes, write_export

    warn_of_stale_results()
    with one_line_errors():
        stream = StreamReader(representation_stream(representation))
        classes = read_classes(paths.CLASSES)
        takes = read_takes(paths.TAKES_TABLE)
        exported = exported_takes(stream, read_labels(paths.LABELS), takes, classes, unlabelled)
        target = out or Path("exports") / f"{layout}-{representation.replace('/', '-')}"
        done = write_export(target, layout, exported, stream.info, classes, unlabelled)
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
    """Return the one stream of a representation or of one draw of it."""
    folder = paths.REPRESENTATIONS
    streams = {path.parent.relative_to(folder).as_posix(): path
               for path in sorted(folder.rglob(paths.STREAM.name))}  # fmt: skip
    if name not in streams:
        names = ", ".join(streams) or "none; run `dvc repro`"
        raise InputError(f"--representation {name}: not in {folder}; there: {names}")
    return streams[name]


@app.command(rich_help_panel=SHARE)
def publish(
    repo: Annotated[
        str | None, typer.Argument(metavar="REPO", help="NAME/MODEL on the hub.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Also write the files here; without REPO, only here.")
    ] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Make the model public; private by default.")
    ] = False,
    licence: Annotated[
        str,
        typer.Option(help="Licence of the encoder, as the hub names it: mit, cc-by-nc-4.0, ..."),
    ] = "other",
) -> None:
    """Upload models/pjepa to the Hugging Face hub, with a model card made from this project."""
    from pjepa.model.encoder import ProcedureEncoder

    warn_of_stale_results()
    with one_line_errors():
        if repo is None and folder is None:
            raise InputError("expected NAME/MODEL on the hub, or --folder DIR to look at it first")
        if not paths.ENCODER.is_dir():
            raise InputError(f"{paths.ENCODER}: no encoder; run `dvc repro select`")
        if folder is not None:
            check_publication(folder, paths.ENCODER)
        encoder = ProcedureEncoder.from_pretrained(paths.ENCODER)
        card = project_card(encoder, licence)
        if folder is not None:
            encoder.save_pretrained(folder, card)
            typer.echo(f"{folder}: model.safetensors, config.json, README.md")
        if repo is not None:
            typer.echo(encoder.push_to_hub(repo, card, private=not public))


def project_card(encoder: ProcedureEncoder, licence: str = "other") -> str:
    """Return the card with this project's stream, takes, selection and metrics."""
    from pjepa.core.tables import pretraining_takes, read_takes
    from pjepa.model.card import CardFacts, model_card
    from pjepa.storage.reading import read_object
    from pjepa.streams.stream import StreamReader

    features = paths.representation_streams(paths.representation("pjepa"))
    counts: Counter[str] = Counter()
    if paths.TAKES_TABLE.exists():
        table = read_takes(paths.TAKES_TABLE)
        seen = table[table["take_id"].isin(pretraining_takes(table))]
        counts.update(seen["dataset"] + " " + seen["split"])
    pooler, selection, metrics = (
        read_object(path) if path.exists() else {}
        for path in (
            paths.POOLER / "config.json", paths.ENCODER / "selection.json", paths.METRICS
        )
    )  # fmt: skip
    facts = CardFacts(
        tokens=StreamReader(paths.STREAM).info if paths.STREAM.exists() else None,
        features=StreamReader(features[0]).info if features else None,
        takes=counts,
        selection=selection,
        metrics={
            probe: rows
            for probe, rows in metrics.items()
            if all(isinstance(row, dict) for row in rows.values())  # the demo has numbers there
        },
        datasets=sorted({name.rsplit(" ", 1)[0] for name in counts}),
        backbone=(pooler.get("patches") or {}).get("backbone", ""),
        licence=licence,
    )
    return model_card(encoder.config, facts)
