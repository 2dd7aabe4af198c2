"""The supplement's analyses of one run, put together: trajectories, progress, maps, a pair."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pjepa.core.machine import cores
from pjepa.core.runs import runs
from pjepa.core.tables import Classes
from pjepa.metrics.bootstrap import Interval, median_interval
from pjepa.metrics.trajectory import (
    binned_progress,
    path_2d,
    progress,
    segment_times,
    segment_vectors,
    trajectory,
)
from pjepa.report.config import ReportConfig
from pjepa.report.results import REFERENCE, Predictions, Results
from pjepa.streams.stream import StreamReader
from pjepa.ui.console import track

# The supplement's feature-space analysis: trajectory diagnostics and the progress profile.

# Medians over EgoProceL validation videos, I3D features: raw, P-JEPA (paper, supplement).
PAPER_TRAJECTORIES = {
    "straightness": (0.0589, 0.0839),
    "spearman": (0.6078, 0.9351),
    "efficiency": (0.3512, 0.7685),
    "monotonic": (0.5870, 0.7059),
    "temporal_neighbor": (0.4737, 0.8000),
    "adjacent_cosine": (0.0339, 0.3376),
    "displacement": (0.2632, 1.1355),
}
SPREAD = (25.0, 75.0)  # percentiles over takes

Medians = Mapping[str, Interval | None]  # by diagnostic; None where no take has a value


@dataclass(frozen=True)
class Walk:
    """One take's segments in a representation: vectors [S, D], relative times [S], first tokens."""

    vectors: np.ndarray
    times: np.ndarray
    tokens: np.ndarray


@dataclass(frozen=True)
class Profile:
    """Progress over relative time: the mean over takes and their quartiles, per bin."""

    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    takes: int  # those with an axis


Walks = Mapping[str, Walk]  # by take id


def read_walks(stream: Path, takes: Sequence[str]) -> dict[str, Walk]:
    """Return the annotated segments of the given takes, in the stream's representation."""
    reader, found = StreamReader(stream), {}
    for take_id in takes:
        take = reader.read(take_id)
        starts = runs(take.segment)[0]
        found[take_id] = Walk(
            segment_vectors(take.features, take.segment),
            segment_times(take.times, take.segment),
            starts[take.segment[starts] >= 0],
        )
    return found


def trajectory_medians(
    variants: Sequence[Walks], groups: Mapping[str, str], config: ReportConfig
) -> dict[str, Interval | None]:
    """Return medians over takes with 95 % intervals; a take's value is the mean over variants."""
    rows = [
        {take: asdict(trajectory(walk.vectors)) for take, walk in walks.items()}
        for walks in variants
    ]
    values = {
        name: {take: float(np.mean([row[take][name] for row in rows])) for take in rows[0]}
        for name in PAPER_TRAJECTORIES
    }
    return {
        name: median_interval(by_take, groups, config.bootstrap, config.seed)
        for name, by_take in values.items()
    }


def progress_profile(walks: Walks, bins: int) -> Profile | None:
    """Return mean and quartiles over takes of progress p in bins of relative time, if any.

    Segments of one take in one bin are averaged first, so that every take counts once. Where too
    few segments leave a bin empty in all takes, bins are halved until none is.
    """
    found = [(walk.times, progress(walk.vectors)) for walk in walks.values()]
    moving = [(times, p) for times, p in found if p is not None]
    if not moving:
        return None
    while True:
        table = np.array([binned_progress(times, p, bins) for times, p in moving])
        if bins == 1 or not np.isnan(table).all(0).any():
            break
        bins //= 2
    low, high = np.nanpercentile(table, SPREAD, axis=0)
    return Profile(np.nanmean(table, 0).tolist(), low.tolist(), high.tolist(), len(moving))


# t-SNE maps of segments, raw and contextualised, and the paths of takes on them.

# Medians over EgoProceL validation videos on the paper's map: raw, P-JEPA (supplement).
PAPER_PATHS = {
    "straightness": (0.0282, 0.2141),
    "median_step": (1.2410, 0.5858),
    "step_90": (5.4648, 3.1594),
    "longest_step": (7.7705, 10.0568),
    "length": (37.5821, 33.3859),
    "displacement": (1.3174, 6.2600),
}
PRINCIPAL = 50  # components kept before t-SNE, as is common
PERPLEXITY = 30.0
SMALLEST = 8  # points; below that there is no map to speak of


@dataclass(frozen=True)
class Maps:
    """The same segments on one map per representation."""

    takes: tuple[str, ...]  # those on the maps
    of: int  # takes there are
    take: np.ndarray  # [N] index into takes
    times: np.ndarray  # [N] relative time
    labels: np.ndarray  # [N] true class
    points: Mapping[str, np.ndarray]  # representation -> [N, 2]
    paths: Mapping[str, Medians]  # representation -> medians of the path diagnostics


def maps_json(maps: Maps) -> dict[str, Any]:
    """Return the maps as JSON values; the medians of their paths are among the analyses."""
    points = {name: np.round(xy, 2).tolist() for name, xy in maps.points.items()}
    arrays = {"take": maps.take, "times": np.round(maps.times, 4), "labels": maps.labels}
    return {
        "takes": list(maps.takes),
        "of": maps.of,
        "names": list(points),  # in their order: keys are sorted
        "points": points,
        **{name: values.tolist() for name, values in arrays.items()},
    }


def maps_from(values: Mapping[str, Any], paths: Mapping[str, Medians]) -> Maps:
    """Return what `maps_json` wrote, with the medians of the paths."""
    return Maps(
        takes=tuple(values["takes"]),
        of=values["of"],
        take=np.array(values["take"]),
        times=np.array(values["times"]),
        labels=np.array(values["labels"]),
        points={name: np.array(values["points"][name]) for name in values["names"]},
        paths=paths,
    )


def same_segments(first: Maps, second: Maps) -> bool:
    """Return whether point i of both is the same segment."""
    return first.takes == second.takes and all(
        np.array_equal(getattr(first, name), getattr(second, name))
        for name in ("take", "times", "labels")
    )


def sampled_takes(lengths: Mapping[str, int], limit: int, seed: int) -> list[str]:
    """Return whole takes drawn without replacement until `limit` segments, in their own order.

    The first drawn take is kept whatever its length.
    """
    names = list(lengths)
    drawn: list[str] = []
    for place in np.random.default_rng(seed).permutation(len(names)).tolist():
        total = sum(lengths[take] for take in drawn) + lengths[names[place]]
        if drawn and total > limit:
            break
        drawn.append(names[place])
    return [take for take in names if take in set(drawn)]


def segment_maps(
    walks: Mapping[str, Walks],
    labels: Mapping[str, np.ndarray],
    groups: Mapping[str, str],
    config: ReportConfig,
) -> Maps | None:
    """Return maps of every given representation; `labels [T]` are the takes' tokens.

    None if too small.
    """
    first = next(iter(walks.values()))
    lengths = {take: len(walk.times) for take, walk in first.items() if len(walk.times) > 1}
    takes = sampled_takes(lengths, config.map_points, config.seed)
    if sum(lengths[take] for take in takes) < SMALLEST:
        return None
    vectors = {
        name: np.concatenate([mine[take].vectors for take in takes]) for name, mine in walks.items()
    }
    points = tsne_maps(vectors, config.seed)
    take_of = np.repeat(np.arange(len(takes)), [lengths[take] for take in takes])
    return Maps(
        takes=tuple(takes),
        of=len(first),
        take=take_of,
        times=np.concatenate([first[take].times for take in takes]),
        labels=np.concatenate([labels[take][first[take].tokens] for take in takes]),
        points=points,
        paths={
            name: path_medians(found, take_of, takes, groups, config)
            for name, found in points.items()
        },
    )


def path_medians(
    points: np.ndarray,
    take_of: np.ndarray,
    takes: Sequence[str],
    groups: Mapping[str, str],
    config: ReportConfig,
) -> Medians:
    """Return medians over takes of the diagnostics of their paths on one map."""
    rows = {take: asdict(path_2d(points[take_of == i])) for i, take in enumerate(takes)}
    return {
        name: median_interval(
            {take: row[name] for take, row in rows.items()}, groups, config.bootstrap, config.seed
        )
        for name in PAPER_PATHS
    }


def tsne_maps(vectors: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Return `tsne` of every representation [N, D], several at a time."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), ThreadPoolExecutor(cores()) as pool:  # for the whole process
        return dict(zip(vectors, pool.map(lambda v: tsne(v, seed), vectors.values()), strict=True))


def tsne(vectors: np.ndarray, seed: int) -> np.ndarray:
    """Return a seeded t-SNE of vectors [N, D] as [N, 2], through their principal components."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # sums over threads come in another order
        if min(vectors.shape) > PRINCIPAL:
            vectors = PCA(PRINCIPAL, svd_solver="full", random_state=seed).fit_transform(vectors)
        if np.ptp(vectors, axis=0).max() == 0:  # all equal: nothing to lay out
            return np.zeros((len(vectors), 2))
        perplexity = min(PERPLEXITY, (len(vectors) - 1) / 3)
        model = TSNE(2, perplexity=perplexity, init="pca", random_state=seed, n_jobs=1)
        found: np.ndarray = model.fit_transform(vectors.astype(np.float32)).astype(np.float64)
    return found


# Two classes that look alike: the pair raw features confuse most and P-JEPA separates most.

ENOUGH = 20  # tokens of each class; shares of fewer say little
ZOOM_POINTS = 600  # tokens on the zoomed maps


@dataclass(frozen=True)
class ClassPair:
    """Two classes and how often a probe on raw and on P-JEPA takes one for the other, percent."""

    first: int
    second: int
    tokens: int
    before: float
    after: float

    @property
    def gain(self) -> float:
        return self.before - self.after


@dataclass(frozen=True)
class Zoom:
    """The chosen pair, the pair that lost most, and maps of the chosen pair's tokens."""

    pair: ClassPair
    worst: ClassPair
    take: str  # shown below: the one with most of the rarer class
    labels: np.ndarray  # [N]
    points: Mapping[str, np.ndarray]  # representation -> [N, 2]
    silhouette: Mapping[str, float]  # of the two classes in feature space, cosine, -1 to 1


def class_confusion(predictions: Predictions, classes: int) -> np.ndarray:
    """Return counts [truth, prediction] over all takes; unknown truths are dropped."""
    counts = np.zeros((classes, classes), np.int64)
    for take in predictions.values():
        known = (take.labels >= 0) & (take.predicted >= 0) & (take.predicted < classes)
        np.add.at(counts, (take.labels[known], take.predicted[known]), 1)
    return counts


def class_pairs(before: np.ndarray, after: np.ndarray, background: int | None) -> list[ClassPair]:
    """Return every pair of classes with enough tokens, best separated first."""
    tokens = before.sum(1)
    kept = [c for c in range(len(tokens)) if c != background and tokens[c] >= ENOUGH]
    pairs = []
    for place, a in enumerate(kept):
        for b in kept[place + 1 :]:
            total = int(tokens[a] + tokens[b])
            shares = [100.0 * float(m[a, b] + m[b, a]) / total for m in (before, after)]
            pairs.append(ClassPair(a, b, total, *shares))
    return sorted(pairs, key=lambda p: (-p.gain, -p.before, p.first, p.second))


def chosen_pair(pairs: list[ClassPair]) -> tuple[ClassPair, ClassPair] | None:
    """Return the pair to show and the pair that got worst; None without any confusion at all."""
    confused = [pair for pair in pairs if pair.before or pair.after]
    if not confused:
        return None
    shown = confused[0]
    if shown.gain <= 0:
        shown = max(confused, key=lambda pair: pair.before)
    return shown, confused[-1]


def pair_zoom(
    before: Predictions,
    after: Predictions,
    classes: Classes,
    streams: Mapping[str, Path],
    seed: int,
) -> Zoom | None:
    """Return the confusable pair of two cells with maps of its tokens in the given streams."""
    counts = [class_confusion(cell, len(classes.names)) for cell in (before, after)]
    chosen = chosen_pair(class_pairs(counts[0], counts[1], classes.background))
    if chosen is None:
        return None
    pair, worst = chosen
    wanted = (pair.first, pair.second)
    places = pair_tokens(before, wanted, seed)
    labels = np.concatenate([before[t].labels[rows] for t, rows in places.items()])
    if len(labels) < SMALLEST:
        return None
    found = {name: unit_tokens(StreamReader(path), places) for name, path in streams.items()}
    silhouettes = {name: silhouette(features, labels) for name, features in found.items()}
    points = tsne_maps(found, seed)
    return Zoom(pair, worst, shown_take(before, wanted), labels, points, silhouettes)


def unit_tokens(reader: StreamReader, places: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the tokens [N, D] at the places of every take, each of length 1 unless it is 0."""
    features = np.concatenate([reader.read(take).features[rows] for take, rows in places.items()])
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    return np.asarray(features / np.where(norms > 0, norms, 1.0))


def pair_tokens(
    predictions: Predictions, wanted: tuple[int, int], seed: int
) -> dict[str, np.ndarray]:
    """Return the tokens of two classes by take, at most `ZOOM_POINTS`, drawn with the seed."""
    rows = [
        (t, i) for t, p in predictions.items() for i in np.flatnonzero(np.isin(p.labels, wanted))
    ]
    if len(rows) > ZOOM_POINTS:
        drawn = np.random.default_rng(seed).choice(len(rows), ZOOM_POINTS, replace=False)
        rows = [rows[place] for place in sorted(drawn.tolist())]
    found: dict[str, list[int]] = {}
    for take, index in rows:
        found.setdefault(take, []).append(int(index))
    return {take: np.array(indices) for take, indices in found.items()}


def shown_take(predictions: Predictions, wanted: tuple[int, int]) -> str:
    """Return the take with most tokens of the rarer class; it has both if any take does."""

    def tokens(take: str) -> tuple[int, int]:
        counts = [int((predictions[take].labels == label).sum()) for label in wanted]
        return min(counts), sum(counts)

    return max(predictions, key=tokens)


def silhouette(features: np.ndarray, labels: np.ndarray) -> float:
    """Return how separate two classes are in feature space: mean silhouette, cosine distance."""
    from sklearn.metrics import silhouette_score
    from threadpoolctl import threadpool_limits

    if len(set(labels.tolist())) < 2 or len(labels) < 3:
        return 0.0
    with threadpool_limits(1):
        return float(silhouette_score(features, labels, metric="cosine"))


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
