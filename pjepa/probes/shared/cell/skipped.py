"""Skipped cells: a data set without labels still runs to the report."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from pjepa.core.files import atomic_folder, read_object, write_json

UNLABELLED = "no take has labels, so there is nothing to fit a probe on"


def all_unlabelled(labels: Mapping[str, np.ndarray]) -> bool:
    """Return whether no token of any take has a label."""
    return not any((part >= 0).any() for part in labels.values())


def write_skipped(out: Path, why: str) -> None:
    """Write a cell's folder that records why there are no results."""
    with atomic_folder(out) as folder:
        write_json(folder / "metrics.json", {})
        write_json(folder / "details.json", {"skipped": why})


def skipped_reason(folder: Path) -> str | None:
    """Return why a cell was skipped; None if it has results or is not there."""
    details = folder / "details.json"
    return read_object(details).get("skipped") if details.exists() else None
