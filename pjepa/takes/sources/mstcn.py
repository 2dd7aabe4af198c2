"""The `mstcn` source: 50Salads, GTEA, Breakfast as MS-TCN bundles them, and FACT's custom sets.

`features/<video>.npy`, `groundTruth/<video>.txt`, `splits/{train,test}.split<fold>.bundle` and
`mapping.txt`. These sets are compared by cross-validation: run every `data.fold`, then average.
MS-TCN's archive unpacks to `data/<set>`: the set is looked for there too.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pjepa.core.tables import FeatureInfo
from pjepa.takes.config import DataConfig, MstcnConfig
from pjepa.takes.folders import set_folder
from pjepa.takes.source import Source
from pjepa.takes.sources.framewise import FolderLayout, framewise_source, read_bundle, read_mapping
from pjepa.ui.errors import InputError

WINDOW = 10  # frames of future in MS-TCN's I3D features: 21 frames centred on each


@dataclass(frozen=True)
class Known:
    """Facts about a public set that are not in its files."""

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


def known_set(own: MstcnConfig) -> Known | None:
    """Return the known conventions of the set with this name."""
    return KNOWN.get(own.dataset.rsplit("/", 1)[-1].lower())


def mstcn_source(own: MstcnConfig, config: DataConfig, root: Path) -> Source:
    """Return the takes of one fold: its train bundle trains, its test bundle is reported."""
    layout = _layout(own, root)
    classes = read_mapping(layout.base / "mapping.txt", own.background)
    splits = {
        split: read_bundle(layout.base / "splits", split, config.fold)
        for split in ("train", "test")
    }
    return framewise_source(layout, classes, splits, config)


def _layout(own: MstcnConfig, root: Path) -> FolderLayout:
    """Return the set's folder and conventions: those given, else those of the set's name."""
    known = known_set(own)
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
    info = FeatureInfo(name, WINDOW / fps if ahead is None else ahead, own.train_labels)
    return FolderLayout(
        dataset=own.dataset,
        root=root,
        folder=set_folder(own, root),
        fps=fps,
        time_first=time_first,
        features=info,
        turn=f"set data.mstcn.time_first: {str(not time_first).lower()}",
        pattern=known.pattern if known else "",
        group=own.group or (known.group if known else "recording"),
        view=known.view if known else "",
    )
