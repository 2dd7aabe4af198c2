"""A start for own videos: a CSV to fill in, the params that read it, and what to do next."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import Any

from pjepa.core.section import read_params, read_section
from pjepa.core.text import sheet_cell
from pjepa.patches.checkpoint import RANDOM, weights_file
from pjepa.patches.config import HF, TIMM, PatchesConfig
from pjepa.pooler.config import PoolerKind
from pjepa.storage.roots import DATA_ROOT, LOCAL, data_root
from pjepa.storage.writing import write_csv
from pjepa.takes.annotations.files import matters, read_annotations
from pjepa.takes.annotations.rows import FIELDS
from pjepa.takes.annotations.text_files import SHOWN, Note
from pjepa.takes.config import DataConfig
from pjepa.takes.sources.scan import write_scan
from pjepa.tools.params import Params, validated
from pjepa.tools.paths import PARAMS, source_list
from pjepa.tools.presets import params_text, preset_values, replaced_params
from pjepa.ui.console import InputError
from pjepa.video.files import VIDEO_SUFFIXES, video_files

LABELS = "labels.csv"
PRESET = "own-videos"
# The action pooler (Eq. 1) needs several cells to attend to, and takes may have any length.
POOLERS: dict[PoolerKind, dict[str, dict[str, Any]]] = {
    "mean": {"patches": {"grid": 1}, "pooler": {"kind": "mean"}},
    "action": {"patches": {"grid": 4}, "pooler": {"kind": "action", "scope": "take"}},
}


def begin(folder: Path, pooler: PoolerKind | None, dry_run: bool) -> Iterator[str]:
    """Write what is not there yet; yield what was written and what to do next."""
    videos = folder.resolve()
    if not videos.is_dir():
        raise InputError(f"{videos}: no such folder")
    if not (names := video_files(videos)):
        raise InputError(f"{videos}: no video in it ({', '.join(VIDEO_SUFFIXES)})")
    below = videos.is_relative_to(data_root().resolve())
    root = data_root().resolve() if below else videos.parent
    params = starter_params(videos.relative_to(root).as_posix(), pooler)
    labelled = labelled_videos(videos, params)
    if params.pooler.kind == "action" and not labelled:
        raise InputError(f"{videos / LABELS}: no labels, which the action pooler is trained on")
    if not below:
        yield _begin_root(folder, root, dry_run)
    yield _begin_labels(videos / LABELS, names, dry_run)
    yield replaced_params(params_text(params), dry_run).rstrip()
    if not dry_run:
        config = read_section(DataConfig, "data")
        listed = source_list(config.source)
        write_scan(config, data_root(), listed)
        yield f"{listed}: written; commit it with {PARAMS}"
    yield from _next(folder, params, labelled)


def starter_params(path: str, pooler: PoolerKind | None) -> Params:
    """Return the preset for own videos, reading this folder.

    Params that read the folder already are the user's and stay, but for the pooler asked for.
    """
    values = read_params()
    own = (values.get("data") or {}).get("folder") or {}
    if own.get("path") != path or values["data"].get("source") != "folder":
        values = preset_values(PRESET).model_dump(mode="json")
        values["data"]["folder"] |= {"path": path, "labels": LABELS}
    changes = {} if pooler is None else POOLERS[pooler]
    for section, change in changes.items():
        values[section] = {**(values.get(section) or {}), **change}
    return validated(values)


def labelled_videos(folder: Path, params: Params) -> int:
    """Return how many videos have a labelled segment."""
    own = params.data.folder
    if own.labels is None or not (folder / own.labels).exists():
        return 0
    rows = read_annotations(folder / own.labels, own.tier, own.frame_rate).rows
    return len({row.video for row in rows if row.label is not None})


def _begin_root(folder: Path, root: Path, dry_run: bool) -> str:
    """Make the videos' parent the data root of this machine, if it has no other."""
    if os.environ.get(DATA_ROOT) or LOCAL.exists():
        raise InputError(
            f"{folder}: not under the data root {data_root()}; move it there, or change "
            f"{DATA_ROOT} or {LOCAL}"
        )
    if not dry_run:
        LOCAL.write_text(f"data_root: {root}\n")
    return f"{LOCAL}: data_root: {root} (this machine's own, not in Git)"


def _begin_labels(path: Path, videos: list[str], dry_run: bool) -> str:
    """Write one row per video, without segments; rows with start, end and label can be added."""
    if path.exists():
        return f"{path}: exists already; left unchanged"
    columns = ["video", "start", "end", "label", *FIELDS]
    if not dry_run:
        blank = [""] * (len(columns) - 1)
        write_csv(path, columns, [[sheet_cell(name), *blank] for name in videos])
    return f"{path}: a row per video; add start, end and label"


def _next(folder: Path, params: Params, labelled: int) -> Iterator[str]:
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
        beside = (path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")))
        if others := [name for name in beside if matters(Path(name)) and name != LABELS]:
            note = Note(f"{len(others)} files look like annotations", tuple(others))
            yield f"{note.line(SHOWN)}; data.folder.labels can name them (docs/own-videos.md)"
    if missing := missing_weights(params.patches):
        yield f"weights: {missing.removeprefix('patches.checkpoint: ')}"
        yield (
            f"or try every step first, untrained, in minutes: `dvc exp run {as_settings()}`; "
            f"`pjepa preset {PRESET} --keep data` goes back"
        )


# A setting with which everything can be tried before weights are fetched: the demo's backbone.

UNTRAINED: dict[str, str | int] = {
    "backbone": "vjepa2_1_vit_tiny",
    "checkpoint": RANDOM,
    "frames_per_window": 16,
    "crop": 96,
}


def missing_weights(config: PatchesConfig) -> str | None:
    """Return why the backbone's weights cannot be loaded, and how to get them; None if they can.

    Models of the hubs fetch theirs when they are loaded.
    """
    if config.checkpoint == RANDOM or config.backbone.startswith((TIMM, HF)):
        return None
    try:
        weights_file(config.backbone, config.checkpoint)
    except InputError as error:
        return str(error)
    return None


def as_settings() -> str:
    """Return the setting for `dvc exp run`."""
    return " ".join(f"-S patches.{name}={value}" for name, value in UNTRAINED.items())


def as_options() -> str:
    """Return the setting for `pjepa extract` and `pjepa plan`."""
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in UNTRAINED.items())
