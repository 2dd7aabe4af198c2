"""What an export holds of every take: features, times, labels, split and a name for files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

import numpy as np
import pandas as pd

from pjepa.core.runs import runs
from pjepa.core.tables import Classes
from pjepa.streams.store import StreamReader
from pjepa.ui.errors import InputError
from pjepa.ui.progress import track

Unlabelled = Literal["drop", "class"]
NO_LABEL = "unlabelled"  # the class that `class` adds
LONGEST_NAME = 200


@dataclass(frozen=True)
class ExportedTake:
    """One take as other tools see it: row i of the features is frame i."""

    name: str  # a file name without suffix; letters, digits and _-~% only
    take_id: str
    split: str
    recording: str
    view: str
    task: str
    features: np.ndarray  # [T, D] float32
    times: np.ndarray  # [T] seconds
    labels: np.ndarray | None  # [T] class ids, none of them -1; None: nothing is known
    dropped: int  # tokens without a label that were left out

    def segments(self) -> int:
        """Return how many runs of equal labels there are."""
        return 0 if self.labels is None else len(runs(self.labels)[0])


def file_stem(take_id: str) -> str:
    """Return the take's name in file names and split lists.

    Percent-quoted, dots too: MS-TCN and its kin cut a name at the first dot.
    """
    name = quote(take_id, safe="").replace(".", "%2E")
    if not name or len(name) > LONGEST_NAME:
        raise InputError(f"take id {take_id[:40]!r}: expected 1 to {LONGEST_NAME} safe characters")
    return name


def class_names(classes: Classes, unlabelled: Unlabelled, spaces: bool) -> list[str]:
    """Return names by id as a layout can hold them: one line each, and one word unless `spaces`."""
    names = [*classes.names, NO_LABEL] if unlabelled == "class" else list(classes.names)
    written = [(" " if spaces else "_").join(name.split()) for name in names]
    for ident, name in enumerate(written):
        if not name or name in written[:ident]:
            raise InputError(
                f"class {ident} {names[ident]!r} cannot be told from another once written as "
                f"{name!r}; rename it in the data"
            )
    return written


def exported_takes(
    stream: StreamReader,
    labels: Mapping[str, np.ndarray],
    takes: pd.DataFrame,
    classes: Classes,
    unlabelled: Unlabelled,
) -> Iterator[ExportedTake]:
    """Yield every take of a representation, one in memory at a time."""
    rows = {row["take_id"]: row for row in takes.to_dict("records")}
    missing = [take_id for take_id in stream.takes if take_id not in rows]
    if missing:
        raise InputError(f"{stream.path}: take {missing[0]!r} is not in takes.parquet")
    read = stream.read_many()
    for take in track(read, "export", total=len(stream.takes), unit="take"):
        row = rows[take.take_id]
        known = labels.get(take.take_id, np.full(len(take.times), -1))
        if len(known) != len(take.times):
            raise InputError(
                f"take {take.take_id}: {len(known)} labels for {len(take.times)} tokens of "
                f"{stream.path}; run `dvc repro`"
            )
        labelled = bool((known >= 0).any())
        drop = (known < 0) & (labelled and unlabelled == "drop")
        shown = np.where(known < 0, len(classes.names), known)
        yield ExportedTake(
            name=file_stem(take.take_id),
            take_id=take.take_id,
            split=row["split"],
            recording=row["recording"],
            view=row["view"],
            task=row["task"],
            features=take.features[~drop],
            times=take.times[~drop],
            labels=shown[~drop] if labelled else None,
            dropped=int(drop.sum()),
        )
