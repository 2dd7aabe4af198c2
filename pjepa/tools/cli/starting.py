"""`pjepa data init`: the files with which own videos begin."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

from pjepa.core.files import atomic_file
from pjepa.core.roots import DATA_ROOT, LOCAL, data_root
from pjepa.core.section import read_section
from pjepa.pooler.config import PoolerKind
from pjepa.takes.annotations.notes import SHOWN, Note
from pjepa.takes.config import DataConfig
from pjepa.takes.sources.scan import write_scan
from pjepa.tools import paths
from pjepa.tools.data.starter import (
    LABELS,
    PRESET,
    labelled_videos,
    other_annotations,
    place_of,
    starter_csv,
    starter_params,
)
from pjepa.tools.params import Params
from pjepa.tools.presets import params_text, text_difference
from pjepa.tools.trying import as_settings, missing_weights
from pjepa.ui.errors import InputError


def begin(folder: Path, dry_run: bool, pooler: PoolerKind | None = None) -> Iterator[str]:
    """Write what is not there yet; yield what was written and what to do next."""
    place = place_of(folder, data_root())
    videos = place.root / place.path
    params = starter_params(place.path, pooler)
    labelled = labelled_videos(videos, params)
    if params.pooler.kind == "action" and not labelled:
        raise InputError(f"{videos / LABELS}: no labels, which the action pooler is trained on")
    yield from _begin_root(folder, place.root, dry_run)
    yield from _begin_labels(videos / LABELS, dry_run)
    after = params_text(params)
    before = paths.PARAMS.read_text()
    yield text_difference(before, after).rstrip() or f"{paths.PARAMS}: nothing to change"
    if not dry_run:
        with atomic_file(paths.PARAMS) as partial:
            partial.write_text(after)
        config = read_section(DataConfig, "data")
        listed = paths.source_list(config.source)
        write_scan(config, data_root(), listed)
        yield f"{listed}: written; commit it with {paths.PARAMS}"
    yield from _next(folder, videos, params, labelled)


def _next(folder: Path, videos: Path, params: Params, labelled: int) -> Iterator[str]:
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
        if others := other_annotations(videos):
            note = Note(f"{len(others)} files look like annotations", tuple(others))
            yield f"{note.line(SHOWN)}; data.folder.labels can name them (docs/own-videos.md)"
    if missing := missing_weights(params.patches):
        yield f"weights: {missing.removeprefix('patches.checkpoint: ')}"
        yield (
            f"or try every step first, untrained, in minutes: `dvc exp run {as_settings()}`; "
            f"`pjepa preset {PRESET} --keep data` goes back"
        )


def _begin_root(folder: Path, root: Path, dry_run: bool) -> Iterator[str]:
    if root.resolve() == data_root().resolve():
        return
    if os.environ.get(DATA_ROOT) or LOCAL.exists():
        raise InputError(
            f"{folder}: not under the data root {data_root()}; move it there, or change "
            f"{DATA_ROOT} or {LOCAL}"
        )
    yield f"{LOCAL}: data_root: {root} (this machine's own, not in Git)"
    if not dry_run:
        LOCAL.write_text(f"data_root: {root}\n")


def _begin_labels(path: Path, dry_run: bool) -> Iterator[str]:
    if path.exists():
        yield f"{path}: exists already; left unchanged"
        return
    yield f"{path}: a row per video; add start, end and label"
    if not dry_run:
        with atomic_file(path) as partial:
            partial.write_text(starter_csv(path.parent))
