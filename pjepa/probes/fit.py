"""A linear probe fitted under its roles, and any probe's scores on the reported takes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from pjepa.config.probe import LinearConfig, ProbeCommonConfig
from pjepa.errors import InputError
from pjepa.metrics.clips import clip_counts
from pjepa.metrics.segmentation import TakeStatistics, scores, take_statistics
from pjepa.probes.linear import LabelledTake, fit_converged, fit_paper
from pjepa.probes.probe import Probe
from pjepa.probes.roles import Labels, Roles, take_roles

FITS = ("converged", "paper")
Features = Callable[[str], NDArray[np.float32]]  # take id -> [T, D]
Segments = Callable[[str], NDArray[np.int64]]  # take id -> [T]


@dataclass(frozen=True)
class Prediction:
    """One take's most probable label per token and its probability."""

    labels: NDArray[np.int64]
    scores: NDArray[np.float32]


@dataclass(frozen=True)
class FitResult:
    """One fit, its predictions on the reported takes, and their statistics."""

    probe: Probe
    predictions: Mapping[str, Prediction]
    statistics: Mapping[str, TakeStatistics]

    def metrics(self) -> dict[str, float]:
        """Return every metric in percent."""
        found = scores(list(self.statistics.values()))
        return {name: float(value) for name, value in found.items()}


def fit_and_score(
    features: Features,
    labels: Labels,
    roles: Roles,
    classes: int,
    background: int | None,
    common: ProbeCommonConfig,
    linear: LinearConfig,
    fits: Sequence[str] = FITS,
    segments: Segments | None = None,
) -> dict[str, FitResult]:
    """Return one result per fit of the linear probe; any representation and target will do.

    The paper's fit uses the first of `common.seeds`. Without `segments`, a clip is a run of equal
    label.
    """
    torch.set_num_threads(common.threads)
    takes = [_labelled(take, features, labels) for take in roles.fit]
    held = [_labelled(take, features, labels) for take in roles.holdout]
    probes = {}
    for name in fits:
        if name == "converged":
            probes[name] = fit_converged(takes, held, classes, linear)
        else:
            probes[name] = fit_paper(takes, classes, linear.paper, common.seeds[0])
    del takes, held
    return {
        name: score_probe(probe, features, segments, labels, roles, background)
        for name, probe in probes.items()
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


def score_probe(
    probe: Probe,
    features: Features,
    segments: Segments | None,
    labels: Labels,
    roles: Roles,
    background: int | None,
) -> FitResult:
    """Return the predictions and statistics of a probe on the reported takes."""
    predictions, statistics = {}, {}
    for take in roles.reported:
        example = _labelled(take, features, labels)
        place = np.zeros(len(example.labels), np.int64) if segments is None else segments(take)
        probability = probe.predict(example.features, place)  # [T, C]
        predictions[take] = Prediction(probability.argmax(1), probability.max(1))
        statistics[take] = scored(example.labels, probability, place, background)
    return FitResult(probe, predictions, statistics)


def scored(
    labels: NDArray[np.int64],
    probability: NDArray[np.float32],
    segments: NDArray[np.int64],
    background: int | None,
) -> TakeStatistics:
    """Return one take's statistics, clips included, of probabilities [T, C]."""
    found = take_statistics(labels, probability.argmax(1), background)
    clips = clip_counts(labels, probability, segments, background)
    return replace(found, clips=clips.clips, clips_correct=clips.correct)


def _labelled(take: str, features: Features, labels: Labels) -> LabelledTake:
    return labelled_take(take, features(take), labels)


def labelled_take(take: str, features: NDArray[np.float32], labels: Labels) -> LabelledTake:
    """Return a take's features with its labels; they must have one length."""
    if len(features) != len(labels[take]):
        raise InputError(
            f"take {take}: {len(features)} tokens but {len(labels[take])} labels; "
            "re-run both stages"
        )
    return LabelledTake(features, labels[take].astype(np.int64))
