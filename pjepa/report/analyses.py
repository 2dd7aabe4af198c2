"""The supplement's analyses of a run: trajectories, progress, maps, a pair that looks alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from pjepa.core.machine import cores
from pjepa.core.runs import runs
from pjepa.core.tables import Classes
from pjepa.metrics.bootstrap import Interval, median_interval
from pjepa.metrics.trajectory import (
    Path2D,
    Trajectory,
    binned_progress,
    path_2d,
    progress,
    segment_times,
    segment_vectors,
    trajectory,
)
from pjepa.report.config import ReportConfig
from pjepa.report.results import REFERENCE, Predictions, Results
from pjepa.report.tables import rounded
from pjepa.streams.stream import StreamReader
from pjepa.ui.console import track

LEARNED = "pjepa"
SHOWN = (REFERENCE, LEARNED)  # on maps

Medians = Mapping[str, Interval | None]  # by diagnostic; None where no take has a value
Streams = Callable[[str], Sequence[Path]]  # representation -> the streams of its variants


@dataclass(frozen=True)
class Analyses:
    """What the supplement shows, for every representation of the cells."""

    takes: int
    trajectories: Mapping[str, Medians]
    profiles: Mapping[str, Profile]
    maps: Maps | None
    pair: PairView | None


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
        rows = {t: [trajectory(walks[t].vectors) for walks in variants] for t in takes}
        trajectories[name] = _medians(rows, groups, config)
        first[name] = variants[0]
    profiles = {n: progress_profile(walks, config.progress_bins) for n, walks in first.items()}
    mapped = {name: first[name] for name in SHOWN if name in first}
    maps = pair = None
    if mapped and predictions:
        labels = {take: p.labels for take, p in next(iter(predictions.values())).items()}
        maps = segment_maps(mapped, labels, groups, config)
    if set(SHOWN) <= set(predictions):
        before, after = (predictions[name] for name in SHOWN)
        paths = {name: streams(name)[0] for name in SHOWN}
        pair = pair_view(before, after, classes, paths, config.seed)
    present = {name: profile for name, profile in profiles.items() if profile is not None}
    return Analyses(len(takes), trajectories, present, maps, pair)


def analyses_json(analyses: Analyses) -> dict[str, Any]:
    """Return the numbers of the analyses as JSON values."""
    values: dict[str, Any] = {
        "takes": analyses.takes,
        "trajectories": analyses.trajectories,
        "progress": analyses.profiles,
    }
    if analyses.maps is not None:
        values["map_paths"] = analyses.maps.paths
    if analyses.pair is not None:
        names = ("pair", "worst", "take", "silhouette")
        values["pair"] = {name: getattr(analyses.pair, name) for name in names}
    return rounded(values)


def medians_from(values: Mapping[str, Any]) -> Medians:
    """Return what `analyses_json` wrote of one representation's medians."""
    return {name: None if row is None else Interval(**row) for name, row in values.items()}


# Trajectory diagnostics in feature space, and the progress profile.

SPREAD = (25.0, 75.0)  # percentiles over takes


@dataclass(frozen=True)
class Walk:
    """One take's segments in a representation: vectors [S, D], relative times [S], first tokens."""

    vectors: np.ndarray
    times: np.ndarray
    tokens: np.ndarray


Walks = Mapping[str, Walk]  # by take id


@dataclass(frozen=True)
class Profile:
    """Progress over relative time: the mean over takes and their quartiles, per bin."""

    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    takes: int  # those with an axis


def read_walks(stream: Path, takes: Sequence[str]) -> dict[str, Walk]:
    """Return the annotated segments of the given takes, in the stream's representation."""
    reader, walks = StreamReader(stream), {}
    for take_id in takes:
        take = reader.read(take_id)
        starts = runs(take.segment)[0]
        walks[take_id] = Walk(
            segment_vectors(take.features, take.segment),
            segment_times(take.times, take.segment),
            starts[take.segment[starts] >= 0],
        )
    return walks


def _medians(
    rows: Mapping[str, Sequence[Trajectory | Path2D]],
    groups: Mapping[str, str],
    config: ReportConfig,
) -> Medians:
    """Return medians over takes with 95 % intervals; a take's value is the mean of its rows."""
    values = {take: [asdict(each) for each in several] for take, several in rows.items()}
    names = next(iter(values.values()))[0]
    return {
        name: median_interval(
            {take: float(np.mean([row[name] for row in mine])) for take, mine in values.items()},
            groups,
            config.bootstrap,
            config.seed,
        )
        for name in names
    }


def progress_profile(walks: Walks, bins: int) -> Profile | None:
    """Return mean and quartiles over takes of progress p in bins of relative time, if any.

    Segments of one take in one bin are averaged first, so that every take counts once. Where too
    few segments leave a bin empty in all takes, bins are halved until none is.
    """
    along = [(walk.times, progress(walk.vectors)) for walk in walks.values()]
    moving = [(times, p) for times, p in along if p is not None]
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

    def shows_the_segments_of(self, other: Maps) -> bool:
        """Return whether point i of both is the same segment."""
        pairs = ((getattr(self, n), getattr(other, n)) for n in ("take", "times", "labels"))
        return self.takes == other.takes and all(np.array_equal(a, b) for a, b in pairs)


def maps_json(maps: Maps) -> dict[str, Any]:
    """Return the maps as JSON values; the medians of their paths are among the analyses."""
    values = {name: value for name, value in vars(maps).items() if name != "paths"}
    return rounded(values | {"names": list(maps.points)})  # in order: keys get sorted


def maps_from(values: Mapping[str, Any], paths: Mapping[str, Medians]) -> Maps:
    """Return what `maps_json` wrote, with the medians of the paths."""
    points = {name: np.array(values["points"][name]) for name in values["names"]}
    take, times, labels = (np.array(values[name]) for name in ("take", "times", "labels"))
    return Maps(tuple(values["takes"]), values["of"], take, times, labels, points, paths)


def sampled_takes(lengths: Mapping[str, int], limit: int, seed: int) -> list[str]:
    """Return whole takes drawn without replacement until `limit` segments, in their own order.

    The first drawn take is kept whatever its length.
    """
    names = list(lengths)
    order = np.random.default_rng(seed).permutation(len(names))
    total = np.cumsum([lengths[names[index]] for index in order])
    drawn = order[: max(int(np.searchsorted(total, limit, side="right")), 1)]
    return [names[index] for index in sorted(drawn.tolist())]


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
    paths = {
        name: _medians(
            {take: [path_2d(xy[take_of == i])] for i, take in enumerate(takes)}, groups, config
        )
        for name, xy in points.items()
    }
    times = np.concatenate([first[take].times for take in takes])
    classes = np.concatenate([labels[take][first[take].tokens] for take in takes])
    return Maps(tuple(takes), len(first), take_of, times, classes, points, paths)


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
        points: np.ndarray = model.fit_transform(vectors.astype(np.float32)).astype(np.float64)
    return points


# Two classes that look alike: the pair raw features confuse most and P-JEPA separates most.

ENOUGH = 20  # tokens of each class; shares of fewer say little
PAIR_POINTS = 600  # tokens on the maps of a pair


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
class PairView:
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
    frequent = [c for c in range(len(tokens)) if c != background and tokens[c] >= ENOUGH]
    pairs = []
    for a, b in combinations(frequent, 2):
        total = int(tokens[a] + tokens[b])
        shares = [100.0 * float(m[a, b] + m[b, a]) / total for m in (before, after)]
        pairs.append(ClassPair(a, b, total, *shares))
    return sorted(pairs, key=lambda p: (-p.gain, -p.before, p.first, p.second))


def chosen_pair(pairs: list[ClassPair]) -> tuple[ClassPair, ClassPair] | None:
    """Return the pair to show and the pair that got worst; None without any confusion at all."""
    confused = [pair for pair in pairs if pair.before or pair.after]
    if not confused:
        return None
    best = confused[0]
    if best.gain <= 0:
        best = max(confused, key=lambda pair: pair.before)
    return best, confused[-1]


def pair_view(
    before: Predictions,
    after: Predictions,
    classes: Classes,
    streams: Mapping[str, Path],
    seed: int,
) -> PairView | None:
    """Return the confusable pair of two cells with maps of its tokens in the given streams."""
    counts = [class_confusion(cell, len(classes.names)) for cell in (before, after)]
    chosen = chosen_pair(class_pairs(counts[0], counts[1], classes.background))
    if chosen is None:
        return None
    both = (chosen[0].first, chosen[0].second)
    rows = pair_tokens(before, both, seed)
    labels = np.concatenate([before[take].labels[mine] for take, mine in rows.items()])
    tokens = {name: unit_tokens(StreamReader(path), rows) for name, path in streams.items()}
    silhouettes = {name: silhouette(features, labels) for name, features in tokens.items()}
    points = tsne_maps(tokens, seed)
    return PairView(*chosen, shown_take(before, both), labels, points, silhouettes)


def unit_tokens(reader: StreamReader, rows: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return these tokens [N, D] of every take, each of length 1 unless it is 0."""
    features = np.concatenate([reader.read(take).features[mine] for take, mine in rows.items()])
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    return np.asarray(features / np.where(norms > 0, norms, 1.0))


def pair_tokens(
    predictions: Predictions, both: tuple[int, int], seed: int
) -> dict[str, np.ndarray]:
    """Return the tokens of two classes by take, at most `PAIR_POINTS`, drawn with the seed."""
    tokens = {t: np.flatnonzero(np.isin(p.labels, both)) for t, p in predictions.items()}
    chosen = np.ones(sum(map(len, tokens.values())), bool)
    if len(chosen) > PAIR_POINTS:
        drawn = np.random.default_rng(seed).choice(len(chosen), PAIR_POINTS, replace=False)
        chosen = np.isin(np.arange(len(chosen)), drawn)
    parts = np.split(chosen, np.cumsum([len(rows) for rows in tokens.values()])[:-1])
    rows = {take: tokens[take][part] for take, part in zip(tokens, parts, strict=True)}
    return {take: mine for take, mine in rows.items() if len(mine)}


def shown_take(predictions: Predictions, both: tuple[int, int]) -> str:
    """Return the take with most tokens of the rarer class; it has both if any take does."""

    def tokens(take: str) -> tuple[int, int]:
        counts = [int((predictions[take].labels == label).sum()) for label in both]
        return min(counts), sum(counts)

    return max(predictions, key=tokens)


def silhouette(features: np.ndarray, labels: np.ndarray) -> float:
    """Return how separate two classes are in feature space: mean silhouette, cosine distance."""
    from sklearn.metrics import silhouette_score
    from threadpoolctl import threadpool_limits

    if len(set(labels.tolist())) < 2:  # a sample may miss the rarer class
        return 0.0
    with threadpool_limits(1):
        return float(silhouette_score(features, labels, metric="cosine"))
