"""The outlook of a run on new video: next step, progress and surprise, for every final token.

Surprise needs the heads that pretraining stored beside the encoder (`pjepa.neighbours`), the other
two what `pjepa questions` fitted. A part that a run does not have stays empty. Progress knows the
clock, which starts with the video.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import torch

from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.forecast import Forecaster, ForecastStream, can_forecast
from pjepa.model.neighbours import HEADS, NeighbourHeads
from pjepa.model.stream import EncoderStream
from pjepa.probes.linear.probe import LinearProbe
from pjepa.storage.reading import file_sha256, read_object, read_tensors
from pjepa.storage.saver import State, numbers
from pjepa.storage.writing import write_tensors

# The answers: a linear probe for the next step, a ridge regression for progress.

RIDGES = tuple(10.0**power for power in range(-2, 6))
UNKNOWN = -1
MODEL = "model.safetensors"


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
        write_tensors(folder / MODEL, vars(self))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the regression that `save` wrote."""
        return cls(**{name: value.numpy() for name, value in read_tensors(folder / MODEL).items()})


def clock_features(seconds: np.ndarray) -> np.ndarray:
    """Return elapsed minutes, squared and cubed [N, 3]."""
    minutes = np.asarray(seconds) / 60
    return np.stack([minutes, minutes**2, minutes**3], axis=1)


def fit_progress(
    features: np.ndarray, progress: np.ndarray, holdout: np.ndarray, truth: np.ndarray
) -> Ridge:
    """Return the ridge regression [N, D] -> [N] that errs least on held-out rows."""
    x = features.astype(np.float64)
    mean, std, bias = x.mean(axis=0), x.std(axis=0) + 1e-6, np.asarray(progress.mean())
    x = (x - mean) / std
    square, right = x.T @ x, x.T @ (progress - bias)
    weights = [np.linalg.solve(square + ridge * np.eye(len(square)), right) for ridge in RIDGES]
    ridges = [Ridge(weight, bias, mean, std) for weight in weights]
    return min(ridges, key=lambda ridge: float(np.abs(ridge.predict(holdout) - truth).mean()))


ABOUT, NEXT, PROGRESS = "about.json", "next", "progress"  # what `pjepa questions` writes
COLUMNS = 4  # next label, its probability, progress, surprise; NaN: not known


class StepOutlook(NamedTuple):
    """The outlook at one token, or of one step."""

    next: float  # label; NaN in any field: not known
    score: float
    progress: float
    surprise: float

    def row(self, names: Sequence[str]) -> dict[str, object]:
        """Return what is known, as JSON values."""
        values: dict[str, object] = {}
        if not np.isnan(self.score):
            values = {"next": names[int(self.next)], "next_score": round(self.score, 4)}
            values["progress"] = round(self.progress, 4)
        if not np.isnan(self.surprise):
            values["surprise"] = round(self.surprise, 4)
        return values


@dataclass(frozen=True)
class Outlook:
    """The parts of the outlook that a run has: surprise, next step and progress."""

    forecaster: Forecaster | None = None
    next: LinearProbe | None = None
    progress: Ridge | None = None
    folders: tuple[Path, ...] = ()  # of the parts

    @classmethod
    def load(cls, encoder: ProcedureEncoder, model: Path, questions: Path) -> Outlook:
        """Return the parts of the encoder in `model` that are there.

        Answers that were fitted to another encoder are none.
        """
        forecaster, folders = None, []
        if can_forecast(model):
            heads = NeighbourHeads.load(model, str(encoder.mean.device))
            forecaster = Forecaster(encoder, heads)
            folders.append(model / HEADS)
        if not fits(model, questions):
            return cls(forecaster, folders=tuple(folders))
        folders += [questions / NEXT, questions / PROGRESS]
        step, progress = LinearProbe.load(questions / NEXT), Ridge.load(questions / PROGRESS)
        return cls(forecaster, step, progress, tuple(folders))

    def answers(self, features: np.ndarray, seconds: np.ndarray) -> np.ndarray:
        """Return next label, its probability and progress [n, 3] of tokens ending at `seconds`."""
        rows = np.full((len(features), COLUMNS - 1), np.nan)
        if self.next is None or self.progress is None or not len(features):
            return rows
        probability = self.next.predict(features)
        rows[:, 0], rows[:, 1] = probability.argmax(1), probability.max(1)
        clocked = np.concatenate([clock_features(seconds), features], axis=1)
        rows[:, 2] = self.progress.predict(clocked)
        return rows

    def whole(
        self, tokens: np.ndarray, features: np.ndarray, lengths: Sequence[int], step_s: float
    ) -> np.ndarray:
        """Return the rows [T, COLUMNS] of a whole take with segments of these lengths."""
        rows = self.answers(features, (1 + np.arange(len(features))) * step_s)
        surprise = np.full(len(lengths), np.nan)
        if self.forecaster is not None:
            surprise = self.forecaster.forecast(tokens, lengths).surprise.cpu().numpy()
        return np.concatenate([rows, np.repeat(surprise, lengths)[:, None]], axis=1)


def of_step(rows: np.ndarray) -> StepOutlook:
    """Return the outlook of a step from its tokens' rows [n, COLUMNS].

    What comes next and progress are told at its end; it is as odd as its oddest segment.
    """
    label, score, progress, _ = rows[-1].tolist()
    return StepOutlook(label, score, progress, float(rows[:, -1].max()))


def fits(model: Path, questions: Path) -> bool:
    """Return whether a folder holds answers that were fitted to the encoder in `model`."""
    about = questions / ABOUT
    return about.exists() and read_object(about, "encoder")["encoder"] == encoder_id(model)


def encoder_id(model: Path) -> str:
    """Return a hash of the encoder's weights."""
    return file_sha256(model / MODEL)


# The outlook while a take goes on, from the encoder's stream of a live session.

FIELDS = ("next", "next_score", "progress", "surprise")


class OutlookStream:
    """Rows [n, COLUMNS] of tokens that an encoder's stream made final, and of whole steps.

    `see` takes features as they become final; `token` says that the label of the oldest waiting one
    is final too, so that it belongs to the present step; `step` ends that step.
    """

    def __init__(
        self,
        outlook: Outlook,
        encoded: EncoderStream | None,
        names: Sequence[str],
        step_s: float,
    ) -> None:
        self.outlook, self.names, self.step_s = outlook, names, step_s
        self.count, self.latest = 0, np.nan  # final tokens; the newest known surprise
        self.waiting = np.zeros((0, COLUMNS))  # rows of tokens without a final label
        self.step_rows = np.zeros((0, COLUMNS))  # of the present step
        self.forecast: ForecastStream | None = None
        if outlook.forecaster is not None and encoded is not None:
            self.forecast = ForecastStream(outlook.forecaster, encoded)

    def see(self, features: np.ndarray) -> None:
        """Take the features [n, d] that the stream returned last."""
        until = (self.count + 1 + np.arange(len(features))) * self.step_s
        self.count += len(features)
        rows = self.outlook.answers(features, until)
        rows = np.concatenate([rows, self._surprise(features)[:, None]], axis=1)
        self.waiting = np.concatenate([self.waiting, rows])

    def token(self) -> None:
        """Add the oldest waiting token to the current step."""
        rows = np.concatenate([self.step_rows, self.waiting[:1]])
        self.step_rows = np.array([of_step(rows)])  # one row is enough to remember
        self.waiting = self.waiting[1:]

    def step(self) -> dict[str, object]:
        """End the current step and return its outlook."""
        rows, self.step_rows = self.step_rows, self.step_rows[:0]
        return of_step(rows).row(self.names)

    def now(self) -> dict[str, object]:
        """Return the outlook at the newest token."""
        newest = np.concatenate([self.step_rows, self.waiting])[-1:]
        return of_step(newest).row(self.names) if len(newest) else {}

    def _surprise(self, features: np.ndarray) -> np.ndarray:
        """Return the surprise at each token's segment, or the newest one while that goes on."""
        if self.forecast is None:
            return np.full(len(features), np.nan)
        first = self.forecast.segment
        x = torch.from_numpy(features).to(self.forecast.forecaster.encoder.mean.device)
        ended = self.forecast.ended(x).surprise.cpu().numpy()
        surprises = np.concatenate([[self.latest], ended])
        own = np.clip(self.forecast.encoded.newest - first + 1, 0, len(ended))
        self.latest = float(surprises[-1])
        return surprises[own]

    def state(self) -> State:
        """Return everything that later rows depend on."""
        state = {
            "counts": numbers(self.count, self.latest),
            "waiting": torch.from_numpy(self.waiting),
            "step": torch.from_numpy(self.step_rows),
        }
        return state | ({} if self.forecast is None else self.forecast.state())

    def restore(self, state: State) -> None:
        """Resume from `state`."""
        count, self.latest = state["counts"].tolist()
        self.count = int(count)
        self.waiting, self.step_rows = state["waiting"].numpy(), state["step"].numpy()
        if self.forecast is not None:
            self.forecast.restore(state)
