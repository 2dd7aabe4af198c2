"""Two classes that look alike: the pair raw features confuse most and P-JEPA separates most.

The confusion of a pair is the share of its true tokens that a probe takes for the other class of
the two. Every pair with enough tokens is scored by confusion on raw minus confusion on P-JEPA,
which is high only where the first is high and the second low. The pair is chosen to show what
context can do, so the pair that got worst is named beside it; where no pair gets better, the one
raw confuses most is shown and the report says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pjepa.core.tables import Classes
from pjepa.report.numbers.maps import SMALLEST, tsne_maps
from pjepa.report.numbers.predictions import Predictions
from pjepa.streams.store import StreamReader

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
