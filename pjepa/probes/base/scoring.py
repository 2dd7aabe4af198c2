"""A fitted probe's predictions and statistics on the reported takes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pjepa.metrics.clips import clip_counts
from pjepa.metrics.segmentation import TakeStatistics, scores, take_statistics
from pjepa.probes.base.probe import Probe
from pjepa.probes.base.roles import Labels, Roles
from pjepa.ui.errors import InputError


class TakeTokens(Protocol):
    """Features [T, D] and segments [T] of a take."""

    def features(self, take: str) -> NDArray[np.float32]: ...

    def segments(self, take: str) -> NDArray[np.int64]: ...


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


@dataclass(frozen=True)
class LabelledTake:
    """One take's features [T, D] and labels [T]; negative labels are unknown."""

    features: NDArray[np.float32]
    labels: NDArray[np.int64]


@dataclass(frozen=True)
class Targets:
    """What a probe is asked for: labels of `classes` kinds, and who is fitted and reported on."""

    labels: Labels
    roles: Roles
    classes: int
    background: int | None

    def example(self, take: str, features: NDArray[np.float32]) -> LabelledTake:
        """Return a take's features with its labels."""
        return labelled_take(take, features, self.labels)


def score_probe(probe: Probe, tokens: TakeTokens, targets: Targets) -> FitResult:
    """Return the predictions and statistics of a probe on the reported takes."""
    predictions, statistics = {}, {}
    for take in targets.roles.reported:
        example = targets.example(take, tokens.features(take))
        place = tokens.segments(take)
        probability = probe.predict(example.features, place)  # [T, C]
        predictions[take] = Prediction(probability.argmax(1), probability.max(1))
        statistics[take] = scored(example.labels, probability, place, targets.background)
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


def labelled_take(take: str, features: NDArray[np.float32], labels: Labels) -> LabelledTake:
    """Return a take's features with its labels; they must have one length."""
    if len(features) != len(labels[take]):
        raise InputError(
            f"take {take}: {len(features)} tokens but {len(labels[take])} labels; "
            "re-run both stages"
        )
    return LabelledTake(features, labels[take].astype(np.int64))
