"""Projects that begin at tokens: takes of a few segments, a small encoder, labels and splits."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pjepa.core.runs import token_offsets
from pjepa.core.tables import TAKES, Classes, write_classes, write_table
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder
from pjepa.streams.provenance import StreamInfo
from pjepa.streams.stream import StreamWriter, Take, write_labels
from pjepa.tools import paths

WIDTH = 6


def make_take(lengths: Sequence[int], name: str = "take", seed: int = 0) -> Take:
    """A take of noise with segments of these lengths, two tokens a second."""
    segment = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    random = np.random.default_rng(seed)
    features = random.normal(size=(len(segment), WIDTH)).astype(np.float32)
    return Take(name, features, np.arange(len(segment)) / 2, segment, token_offsets(segment))


def small_encoder(**changes: Any) -> ProcedureEncoder:
    """An encoder of random weights, its style adapter included."""
    torch.manual_seed(0)
    shape = {"width": 16, "depth": 2, "heads": 2, "block": 8, "attention": "clip_causal"}
    encoder = ProcedureEncoder(EncoderConfig(d_in=WIDTH, **{**shape, **changes})).eval()
    if encoder.config.style_rank:
        encoder.style_read.normal_()
        encoder.style_write.normal_()
        encoder.style_strength.fill_(0.5)
    return encoder


def write_project(
    folder: Path,
    takes: Mapping[str, tuple[Take, np.ndarray]],
    classes: Classes,
    splits: Sequence[str],
    holdout: Sequence[str] = (),
    **info: Any,
) -> None:
    """Write stream, labels, takes and classes; every take is a group."""
    width = next(iter(takes.values()))[0].features.shape[1]
    stream = StreamInfo(**{"source": "test", "fps": 2.0, "width": width, **info})
    with StreamWriter(folder / paths.STREAM, stream, "float32") as writer:
        for take, _ in takes.values():
            writer.write(take)
    write_labels(folder / paths.LABELS, [(n, t.times, label) for n, (t, label) in takes.items()])
    write_classes(folder / paths.CLASSES, classes)
    text = dict.fromkeys(("dataset", "task", "recording", "participant", "view"), "")
    rows = [
        text | {"take_id": name, "group": name, "split": split, "holdout": name in holdout}
        for name, split in zip(takes, splits, strict=True)
    ]
    write_table(folder / paths.TAKES_TABLE, rows, TAKES)
