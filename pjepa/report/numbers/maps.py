"""t-SNE maps of segments, raw and contextualised, and the paths of takes on them.

t-SNE keeps neighbourhoods, not distances: path lengths on a map describe the picture only (paper,
supplement). One thread for each map and a fixed seed, so that the same features give the same map.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pjepa.core.machine import cores
from pjepa.metrics.bootstrap import median_interval
from pjepa.metrics.trajectory import path_2d
from pjepa.report.config import ReportConfig
from pjepa.report.numbers.trajectories import Medians, Walks

# Medians over EgoProceL validation videos on the paper's map: raw, P-JEPA (supplement).
PAPER = {
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
        for name in PAPER
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
