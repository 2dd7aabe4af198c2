"""The outlook of a run on new video: next step, progress and surprise, for every final token.

Surprise needs the heads that pretraining stored beside the encoder (`pjepa.neighbours`), the other
two what `pjepa questions` fitted. A part that a run does not have stays empty. Progress knows the
clock, which starts with the video.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pjepa.core.files import content_sha256, read_object
from pjepa.encoder.encoder import ProcedureEncoder
from pjepa.forecast.forecast import Forecaster, can_forecast
from pjepa.forecast.heads import HEADS, NeighbourHeads
from pjepa.probes.linear.probe import LinearProbe
from pjepa.questions.answers import Ridge
from pjepa.questions.ask import clock_features

ABOUT, NEXT, PROGRESS = "about.json", "next", "progress"  # what `pjepa questions` writes
COLUMNS = 4  # next label, its probability, progress, surprise; NaN: not known


class Foreseen(NamedTuple):
    """The outlook at one token, or of one step."""

    next: float  # label; NaN in any field: not known
    score: float
    progress: float
    surprise: float

    def row(self, names: Sequence[str]) -> dict[str, object]:
        """Return what is known, as JSON values."""
        found: dict[str, object] = {}
        if not np.isnan(self.score):
            found = {"next": names[int(self.next)], "next_score": round(self.score, 4)}
            found["progress"] = round(self.progress, 4)
        if not np.isnan(self.surprise):
            found["surprise"] = round(self.surprise, 4)
        return found


@dataclass(frozen=True)
class Outlook:
    """The parts of the outlook that a run has: surprise, next step and progress."""

    forecaster: Forecaster | None
    next: LinearProbe | None
    progress: Ridge | None
    folders: tuple[Path, ...]  # of the parts

    @classmethod
    def load(cls, encoder: ProcedureEncoder, model: Path, questions: Path) -> Outlook | None:
        """Return the parts of the encoder in `model` that are there; None if there is none.

        Answers that were fitted to another encoder are none.
        """
        forecaster, folders = None, []
        if can_forecast(model):
            device = str(encoder.mean.device)
            forecaster = Forecaster(encoder, NeighbourHeads.load(model, device))
            folders.append(model / HEADS)
        if not fits(model, questions):
            return None if forecaster is None else cls(forecaster, None, None, tuple(folders))
        step, progress = LinearProbe.load(questions / NEXT), Ridge.load(questions / PROGRESS)
        return cls(forecaster, step, progress, (*folders, questions / NEXT, questions / PROGRESS))

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
            surprise = self.forecaster.tell(tokens, lengths).surprise.cpu().numpy()
        return np.concatenate([rows, np.repeat(surprise, lengths)[:, None]], axis=1)


def of_step(rows: np.ndarray) -> Foreseen:
    """Return the outlook of a step from its tokens' rows [n, COLUMNS].

    What comes next and progress are told at its end; it is as odd as its oddest segment.
    """
    label, score, progress, _ = rows[-1].tolist()
    return Foreseen(label, score, progress, float(rows[:, -1].max()))


def fits(model: Path, questions: Path) -> bool:
    """Return whether a folder holds answers that were fitted to the encoder in `model`."""
    about = questions / ABOUT
    return about.exists() and read_object(about, "encoder")["encoder"] == encoder_id(model)


def encoder_id(model: Path) -> str:
    """Return a hash of the encoder's weights."""
    return content_sha256(model / "model.safetensors")
