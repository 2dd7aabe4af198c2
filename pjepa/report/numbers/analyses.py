"""The supplement's analyses of one run, put together: trajectories, progress, maps, a pair."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pjepa.core.tables import Classes
from pjepa.metrics.bootstrap import Interval
from pjepa.report.config import ReportConfig
from pjepa.report.numbers.confusable import Zoom, pair_zoom
from pjepa.report.numbers.maps import Maps, segment_maps
from pjepa.report.numbers.predictions import Predictions
from pjepa.report.numbers.results import REFERENCE, Results
from pjepa.report.numbers.trajectories import (
    Medians,
    Profile,
    Walks,
    progress_profile,
    read_walks,
    trajectory_medians,
)
from pjepa.ui.progress import track

LEARNED = "pjepa"
SHOWN = (REFERENCE, LEARNED)  # on maps
DIGITS = 4

Streams = Callable[[str], Sequence[Path]]  # representation -> the streams of its variants


@dataclass(frozen=True)
class Analyses:
    """What the supplement shows, for every representation of the cells."""

    takes: int
    trajectories: Mapping[str, Medians]
    profiles: Mapping[str, Profile]
    maps: Maps | None
    zoom: Zoom | None


def analyse(
    results: Results,
    predictions: Mapping[str, Predictions],
    classes: Classes,
    streams: Streams,
    config: ReportConfig,
) -> Analyses:
    """Return the analyses on the reported takes.

    `predictions` are those of the first probe by name.
    """
    groups = results.cells[0].statistics.groups
    takes = sorted(groups)
    first: dict[str, Walks] = {}
    trajectories: dict[str, Medians] = {}
    names = list(dict.fromkeys(cell.representation for cell in results.cells))
    for name in track(names, "trajectories", unit="representation"):
        variants = [read_walks(path, takes) for path in streams(name)]
        trajectories[name] = trajectory_medians(variants, groups, config)
        first[name] = variants[0]
    profiles = {
        name: progress_profile(walks, config.progress_bins) for name, walks in first.items()
    }
    mapped = {name: first[name] for name in SHOWN if name in first}
    maps = zoom = None
    if mapped and predictions:
        labels = {take: p.labels for take, p in next(iter(predictions.values())).items()}
        maps = segment_maps(mapped, labels, groups, config)
    if set(SHOWN) <= set(predictions):
        paths = {name: streams(name)[0] for name in SHOWN}
        before, after = (predictions[name] for name in SHOWN)
        zoom = pair_zoom(before, after, classes, paths, config.seed)
    known = {name: profile for name, profile in profiles.items() if profile is not None}
    return Analyses(len(takes), trajectories, known, maps, zoom)


def analyses_json(found: Analyses) -> dict[str, Any]:
    """Return the numbers of the analyses as JSON values."""
    values: dict[str, Any] = {
        "takes": found.takes,
        "trajectories": {name: _medians(row) for name, row in found.trajectories.items()},
        "progress": {name: _profile(profile) for name, profile in found.profiles.items()},
    }
    if found.maps is not None:
        values["map_paths"] = {name: _medians(row) for name, row in found.maps.paths.items()}
    if found.zoom is not None:
        values["pair"] = {
            "pair": asdict(found.zoom.pair),
            "worst": asdict(found.zoom.worst),
            "take": found.zoom.take,
            "silhouette": {k: round(v, DIGITS) for k, v in found.zoom.silhouette.items()},
        }
    return values


def medians_from(values: Mapping[str, Any]) -> Medians:
    """Return what `analyses_json` wrote of one representation's medians."""
    return {name: None if row is None else Interval(**row) for name, row in values.items()}


def _medians(medians: Medians) -> dict[str, dict[str, float] | None]:
    return {
        name: None if row is None else {k: round(v, DIGITS) for k, v in asdict(row).items()}
        for name, row in medians.items()
    }


def _profile(profile: Profile) -> dict[str, Any]:
    rounded = {
        name: np.round(getattr(profile, name), DIGITS).tolist() for name in ("mean", "low", "high")
    }
    return {**rounded, "takes": profile.takes}
