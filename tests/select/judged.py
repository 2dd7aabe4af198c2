"""A stream, its labels and three snapshots, of which one is best by construction."""

from pathlib import Path

import numpy as np
import torch

from pjepa.core.runs import token_offsets
from pjepa.core.tables import Classes
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder
from pjepa.streams.stream import Take, read_labels, write_labels
from pjepa.tools.params import Params
from pjepa.tools.paths import LABELS, SNAPSHOTS
from pjepa.tools.presets import params_text
from tests.worlds.token_projects import write_project

KINDS = 4
ROLES = ["train"] * 6 + ["holdout"] * 2 + ["val"] * 2 + ["test"] * 2
TELLS = {"train": (1, 1), "holdout": (1, 0), "val": (0, 1), "test": (0, 0)}  # left, right half


def write_snapshot(epoch, half):
    """An encoder that passes on one half of the channels (0 left, 1 right), or nothing (None)."""
    encoder = ProcedureEncoder(
        EncoderConfig(d_in=2 * KINDS, width=8, depth=1, heads=2, attention="clip_causal")
    )
    for parameter in encoder.parameters():
        torch.nn.init.zeros_(parameter)
    if half is not None:
        with torch.no_grad():  # no projection, blocks that add nothing: features = norm of input
            encoder.norm.weight[half * KINDS : (half + 1) * KINDS] = 1
    encoder.save_pretrained(SNAPSHOTS / f"{epoch:05d}")


def write_world():
    """Twelve takes. The left channels tell the label on the hold-out, the right ones on val."""
    rng, takes = np.random.default_rng(0), {}
    for number, role in enumerate(ROLES):
        segment = np.repeat(np.arange(8), 5).astype(np.int32)
        label = rng.integers(0, KINDS, 8)[segment]
        halves = [tells * 4.0 * np.eye(KINDS)[label] for tells in TELLS[role]]
        features = np.concatenate(halves, axis=1) + rng.normal(size=(40, 2 * KINDS))
        times, name = np.arange(40) / 4, f"t{number}"
        takes[name] = Take(name, features, times, segment, token_offsets(segment)), label
    splits = ["train" if role == "holdout" else role for role in ROLES]
    classes = Classes(tuple("abcd"), 0)
    write_project(Path(), takes, classes, splits, takes_of("holdout"), fps=4.0)
    for epoch, half in ((20, 0), (40, 1), (100, None)):
        write_snapshot(epoch, half)


def write_params(**sections):
    values = {"threads": 1, **sections}
    Path("params.yaml").write_text(params_text(Params.model_validate(values)))


def relabelled(*roles):
    """labels.parquet with the labels of the takes of some roles drawn anew."""
    rng, changed = np.random.default_rng(1), set().union(*map(takes_of, roles))
    rows = []
    for take, labels in read_labels(LABELS).items():
        drawn = rng.integers(0, KINDS, len(labels))
        rows.append((take, np.arange(len(labels)) / 4, drawn if take in changed else labels))
    write_labels(LABELS, rows)


def takes_of(role):
    return {f"t{number}" for number, name in enumerate(ROLES) if name == role}
