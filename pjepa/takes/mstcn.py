"""The `mstcn` source: 50Salads, GTEA, Breakfast as MS-TCN bundles them, and FACT's custom sets.

`features/<video>.npy`, `groundTruth/<video>.txt`, `splits/{train,test}.split<fold>.bundle` and
`mapping.txt`. These sets are compared by cross-validation: run every `data.fold`, then average.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pjepa.config.data import DataConfig, MstcnConfig
from pjepa.errors import InputError
from pjepa.takes.framewise import Layout, framewise_source, read_mapping, read_split
from pjepa.takes.manifest import FeatureInfo
from pjepa.takes.source import Source

WINDOW = 10  # frames of future in MS-TCN's I3D features: 21 frames centred on each


@dataclass(frozen=True)
class Known:
    """What the files of a public set do not say."""

    fps: float
    pattern: str
    group: Literal["recording", "participant"] = "participant"
    time_first: bool = False
    name: str = "I3D, RGB and flow"
    view: str = ""


KNOWN = {
    "50salads": Known(30.0, r"rgb-(?P<participant>\d+)-\d+", view="top"),
    # A fold tests one of four people: groups are recordings, or there would be one to resample.
    "gtea": Known(15.0, r"(?P<participant>S\d+)_(?P<task>\w+)_C\d+", "recording", view="ego"),
    "breakfast": Known(
        15.0, r"(?P<participant>P\d+)_(?P<view>[a-z]+\d*)_(?P<recording>P\d+_(?P<task>\w+))"
    ),
}


def mstcn_source(own: MstcnConfig, config: DataConfig, root: Path) -> Source:
    """The takes of one fold: its train bundle trains, its test bundle is reported."""
    layout = _layout(own, root)
    classes = read_mapping(layout.base / "mapping.txt", own.background)
    splits = {split: _bundle(layout, split, config.fold) for split in ("train", "test")}
    return framewise_source(layout, classes, splits, config)


def _layout(own: MstcnConfig, root: Path) -> Layout:
    """The set's folder and conventions: those given, else those of the set's name."""
    known = KNOWN.get(own.dataset.rsplit("/", 1)[-1].lower())
    fps = own.fps or (known.fps if known else None)
    if fps is None:
        raise InputError(
            f"data.mstcn.dataset {own.dataset!r} is not one of {', '.join(KNOWN)}: set "
            "data.mstcn.fps, the rate of its features"
        )
    ahead = own.lookahead_s
    if ahead is None and known is None:
        raise InputError(
            f"data.mstcn.dataset {own.dataset!r}: set data.mstcn.lookahead_s, how many seconds "
            "ahead a feature has seen (half its window; 0 for single frames)"
        )
    time_first = own.time_first
    if time_first is None:
        time_first = known.time_first if known else True
    name = f"{known.name if known else 'features'} of {own.dataset}"
    return Layout(
        dataset=own.dataset,
        root=root,
        folder=own.dataset if own.path == "." else f"{own.path}/{own.dataset}",
        fps=fps,
        time_first=time_first,
        features=FeatureInfo(name, WINDOW / fps if ahead is None else ahead),
        pattern=known.pattern if known else "",
        group=own.group or (known.group if known else "recording"),
        view=known.view if known else "",
    )


def _bundle(layout: Layout, split: str, fold: int) -> list[str]:
    path = layout.base / "splits" / f"{split}.split{fold}.bundle"
    if not path.is_file():
        there = sorted(file.name for file in path.parent.glob(f"{split}.*.bundle"))
        raise InputError(
            f"{path}: no such file; data.fold {fold} of {', '.join(there) or 'no bundle at all'}"
        )
    return read_split(path)
