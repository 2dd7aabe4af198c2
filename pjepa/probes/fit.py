"""Who is fitted on, chosen on and reported; and the probe's scores under those roles.

Probes fit on train takes without hold-out, choose on the hold-out, and are reported on `test`
where it has labels, else on `val` (design: takes, cells).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from pjepa.config.probe import LinearConfig, ProbeCommonConfig
from pjepa.errors import InputError
from pjepa.metrics.segmentation import TakeStatistics, scores, take_statistics
from pjepa.probes.linear import LabelledTake, LinearProbe, fit_converged, fit_paper

FITS = ("converged", "paper")
Features = Callable[[str], NDArray[np.float32]]  # take id -> [T, D]
Labels = Mapping[str, NDArray[np.int32]]


@dataclass(frozen=True)
class Roles:
    """Take ids by role, in table order; `groups` of the reported takes."""

    fit: tuple[str, ...]
    holdout: tuple[str, ...]
    reported: tuple[str, ...]
    split: str
    groups: Mapping[str, str]


@dataclass(frozen=True)
class Prediction:
    """One take's most probable label per token and its probability."""

    labels: NDArray[np.int64]
    scores: NDArray[np.float32]


@dataclass(frozen=True)
class FitResult:
    """One fit, its predictions on the reported takes, and their statistics."""

    probe: LinearProbe
    predictions: Mapping[str, Prediction]
    statistics: Mapping[str, TakeStatistics]

    def metrics(self) -> dict[str, float]:
        """Return every metric in percent."""
        found = scores(list(self.statistics.values()))
        return {name: float(value) for name, value in found.items()}


def take_roles(takes: pd.DataFrame, labels: Labels) -> Roles:
    """Return the roles of the labelled takes of the takes table."""
    known = [bool((labels.get(take, np.zeros(0)) >= 0).any()) for take in takes["take_id"]]
    table = takes[known]

    def ids(rows: pd.DataFrame) -> tuple[str, ...]:
        return tuple(str(take) for take in rows["take_id"])

    train, held = table["split"] == "train", table["holdout"].astype(bool)
    split = "test" if (table["split"] == "test").any() else "val"
    reported = table[table["split"] == split]
    for what, rows in (("train", table[train & ~held]), ("test or val", reported)):
        if rows.empty:
            raise InputError(f"no {what} take has labels; a probe needs some")
    groups = dict(zip(ids(reported), reported["group"].astype(str), strict=True))
    return Roles(ids(table[train & ~held]), ids(table[train & held]), ids(reported), split, groups)


def fit_and_score(
    features: Features,
    labels: Labels,
    roles: Roles,
    classes: int,
    background: int | None,
    common: ProbeCommonConfig,
    linear: LinearConfig,
    fits: Sequence[str] = FITS,
) -> dict[str, FitResult]:
    """Return one result per fit; every representation and target is measured through here."""
    torch.set_num_threads(common.threads)
    takes = [_labelled(take, features, labels) for take in roles.fit]
    held = [_labelled(take, features, labels) for take in roles.holdout]
    probes = {}
    for name in fits:
        if name == "converged":
            probes[name] = fit_converged(takes, held, classes, linear)
        else:
            probes[name] = fit_paper(takes, classes, linear.paper, common.seed)
    del takes, held
    return {
        name: _result(probe, features, labels, roles, background) for name, probe in probes.items()
    }


def probe_accuracy(
    features: Features,
    targets: Labels,
    takes: pd.DataFrame,
    common: ProbeCommonConfig,
    linear: LinearConfig,
) -> float:
    """Return how well a converged probe reads any per-token target, in percent of known tokens."""
    roles = take_roles(takes, targets)
    classes = 1 + max(int(target.max(initial=0)) for target in targets.values())
    found = fit_and_score(
        features, targets, roles, classes, None, common, linear, fits=("converged",)
    )
    return found["converged"].metrics()["acc_bg"]


def _labelled(take: str, features: Features, labels: Labels) -> LabelledTake:
    x, y = features(take), labels[take].astype(np.int64)
    if len(x) != len(y):
        raise InputError(f"take {take}: {len(x)} tokens but {len(y)} labels; re-run both stages")
    return LabelledTake(x, y)


def _result(
    probe: LinearProbe, features: Features, labels: Labels, roles: Roles, background: int | None
) -> FitResult:
    predictions, statistics = {}, {}
    for take in roles.reported:
        example = _labelled(take, features, labels)
        probability = probe.predict(example.features)  # [T, C]
        best = probability.argmax(1)
        predictions[take] = Prediction(best, probability.max(1))
        statistics[take] = take_statistics(example.labels, best, background)
    return FitResult(probe, predictions, statistics)
