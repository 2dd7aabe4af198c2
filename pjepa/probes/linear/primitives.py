"""The demo's true primitives, read by a linear probe: do tokens show what can be seen at all?"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from pjepa.probes.base.data import CellData
from pjepa.probes.base.roles import Labels
from pjepa.probes.linear.config import LinearConfig
from pjepa.probes.linear.fit import probe_accuracy
from pjepa.streams.store import StreamReader
from pjepa.ui.errors import InputError

READERS = ("raw", "pjepa")  # the representations the proof asks


def primitive_readings(cell: CellData, config: LinearConfig, truth: Path) -> Mapping[str, float]:
    """Return how many percent of tokens (idle included) show their true primitive."""
    if cell.representation not in READERS:
        return {}
    reader = cell.readers[0]
    targets = primitive_targets(reader, truth)
    found = probe_accuracy(
        lambda take: reader.read(take).features, targets, cell.takes, cell.common, config
    )
    return {"primitive": found}


def primitive_targets(reader: StreamReader, truth: Path) -> Labels:
    """Return the primitive shown at every token (the last truth up to its time), -1 if none."""
    frame = pq.read_table(truth).to_pandas()
    parts = {str(take): part for take, part in frame.groupby("take_id", sort=False)}
    targets = {}
    for take in reader.takes:
        if take not in parts:
            raise InputError(f"{truth}: no take {take!r}; run `dvc repro takes`")
        times = parts[take]["time_s"].to_numpy(np.float64)
        index = np.searchsorted(times, reader.read(take).times + 1e-6, side="right") - 1
        known = parts[take]["primitive"].to_numpy(np.int32)[np.maximum(index, 0)]
        targets[take] = np.where(index >= 0, known, -1).astype(np.int32)
    return targets
