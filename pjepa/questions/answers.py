"""The answers: a linear probe for the next step, a ridge regression for progress.

Both are fitted on train takes cut at every share of `SHARES` at once and choose their strength on
the held-out ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from safetensors.numpy import load_file, save_file

from pjepa.probes.base.scoring import LabelledTake
from pjepa.probes.linear.config import LinearConfig
from pjepa.probes.linear.probe import LinearProbe, fit_converged
from pjepa.questions.cuts import Cuts

RIDGES = tuple(10.0**power for power in range(-2, 6))
UNKNOWN = -1
MODEL = "model.safetensors"


def next_steps(labels: np.ndarray, cuts: Cuts, background: int | None) -> np.ndarray:
    """Return the label of the next step at every cut [N]; labels [T] are the tokens'.

    Background is no step: it is not asked for, and nothing is asked during it.
    """
    own = labels[cuts.start]
    known = own[cuts.share == 1]  # [S] in order
    following = np.full(len(known), UNKNOWN)
    ahead = UNKNOWN
    for place in range(len(known) - 1, -1, -1):
        following[place] = ahead
        ahead = known[place] if known[place] != background else ahead
    asked = (own != background) & (own >= 0)
    return np.where(asked, following[cuts.segment], UNKNOWN)


def fit_next(
    features: Mapping[str, np.ndarray],
    targets: Mapping[str, np.ndarray],
    fit: Sequence[str],
    holdout: Sequence[str],
    classes: int,
    config: LinearConfig,
) -> LinearProbe:
    """Return the converged linear probe from features to the next step."""
    parts = [[LabelledTake(features[t], targets[t]) for t in takes] for takes in (fit, holdout)]
    return fit_converged(parts[0], parts[1], classes, config)


@dataclass(frozen=True)
class Ridge:
    """Relative time = w (x - mean) / std + b, cut to 0..1."""

    weight: np.ndarray  # [D]
    bias: np.ndarray  # []
    mean: np.ndarray  # [D]
    std: np.ndarray  # [D]

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Return relative time [N] of features [N, D]."""
        return np.clip(((features - self.mean) / self.std) @ self.weight + self.bias, 0.0, 1.0)

    def save(self, folder: Path) -> None:
        """Write `model.safetensors`."""
        folder.mkdir(parents=True, exist_ok=True)
        parts = {name: np.ascontiguousarray(value) for name, value in vars(self).items()}
        save_file(parts, folder / MODEL)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the regression that `save` wrote."""
        return cls(**load_file(folder / MODEL))


def fit_progress(
    features: Mapping[str, np.ndarray],
    targets: Mapping[str, np.ndarray],
    fit: Sequence[str],
    holdout: Sequence[str],
) -> Ridge:
    """Return the ridge regression whose strength errs least on held-out takes."""
    x = np.concatenate([features[take] for take in fit]).astype(np.float64)
    y = np.concatenate([targets[take] for take in fit])
    mean, std, bias = x.mean(axis=0), x.std(axis=0) + 1e-6, np.asarray(y.mean())
    x = (x - mean) / std
    square, right = x.T @ x, x.T @ (y - bias)
    found = []
    for strength in RIDGES:
        weight = np.linalg.solve(square + strength * np.eye(len(square)), right)
        found.append(Ridge(weight, bias, mean, std))
    return min(found, key=lambda ridge: _error(ridge, features, targets, holdout or fit))


def _error(
    ridge: Ridge,
    features: Mapping[str, np.ndarray],
    targets: Mapping[str, np.ndarray],
    takes: Sequence[str],
) -> float:
    rows = [np.abs(ridge.predict(features[take]) - targets[take]) for take in takes]
    return float(np.concatenate(rows).mean())
