"""`pjepa data init`: the files with which own videos begin."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pjepa import paths
from pjepa.config.data import DataConfig
from pjepa.config.params import Params
from pjepa.config.presets import params_text, text_difference
from pjepa.config.section import read_params, read_section
from pjepa.errors import InputError
from pjepa.roots import DATA_ROOT, LOCAL, data_root
from pjepa.takes.scan import write_scan
from pjepa.takes.starter import LABELS, place_of, starter_csv, starter_params
from pjepa.work import whole_file


def begin(folder: Path, dry_run: bool) -> Iterator[str]:
    """Writes what is not there yet, and says what and what comes next."""
    place = place_of(folder, data_root())
    if place.root.resolve() != data_root().resolve():
        if os.environ.get(DATA_ROOT) or LOCAL.exists():
            raise InputError(
                f"{folder}: not under the data root {data_root()}; move it there, or change "
                f"{DATA_ROOT} or {LOCAL}"
            )
        yield f"{LOCAL}: data_root: {place.root} (this machine's own, not in Git)"
        if not dry_run:
            LOCAL.write_text(f"data_root: {place.root}\n")
    yield from _begin_labels(place.root / place.path / LABELS, dry_run)
    after = params_text(Params.model_validate(starter_params(read_params(), place.path)))
    before = paths.PARAMS.read_text()
    yield text_difference(before, after).rstrip() or f"{paths.PARAMS}: nothing to change"
    if dry_run:
        return
    with whole_file(paths.PARAMS) as partial:
        partial.write_text(after)
    listed = write_scan(read_section(DataConfig, "data"), data_root())
    yield f"{listed}: written; commit it with {paths.PARAMS}"
    yield (
        f"next: fill in {LABELS} (or leave it: unlabelled takes are encoded and pretrained on), "
        "`pjepa data scan`, `pjepa data check`, choose patches.backbone, `dvc repro`"
    )


def _begin_labels(path: Path, dry_run: bool) -> Iterator[str]:
    if path.exists():
        yield f"{path}: is there already, left as it is"
        return
    yield f"{path}: a row per video; add start, end and label"
    if not dry_run:
        with whole_file(path) as partial:
            partial.write_text(starter_csv(path.parent))
