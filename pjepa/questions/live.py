"""The outlook while a take goes on, from the encoder's stream of a live session."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from pjepa.core.files import atomic_file
from pjepa.core.text import sheet_cell
from pjepa.encoder.stream import EncoderStream
from pjepa.forecast.forecast import Forecaster, ForecastStream, Told
from pjepa.nn.state import State, numbers
from pjepa.questions.outlook import COLUMNS, Foreseen, Outlook, of_step

FIELDS = ("next", "next_score", "progress", "surprise")


class _Watching(ForecastStream):
    """A forecast that watches a stream that somebody else pushes to."""

    def __init__(self, forecaster: Forecaster, encoded: EncoderStream) -> None:
        super().__init__(forecaster, encoded.rule)
        self.encoded = encoded

    def ended(self, features: np.ndarray) -> Told:
        """Return the segments that ended with these features, which the stream returned last."""
        self.features = torch.from_numpy(features).to(self.encoded.encoder.mean.device)
        return self._ended()


class OutlookStream:
    """Rows [n, COLUMNS] of tokens that an encoder's stream made final, and of whole steps.

    `see` takes features as they become final; `token` says that the label of the oldest waiting one
    is final too, so that it belongs to the present step; `step` ends that step. Without an outlook
    all of them do nothing.
    """

    def __init__(
        self,
        outlook: Outlook | None,
        encoded: EncoderStream | None,
        names: Sequence[str],
        step_s: float,
    ) -> None:
        self.outlook = None if encoded is None else outlook
        self.names, self.step_s = names, step_s
        self.count, self.latest = 0, np.nan  # final tokens; the newest known surprise
        self.waiting = np.zeros((0, COLUMNS))  # rows of tokens without a final label
        self.step_rows = np.zeros((0, COLUMNS))  # of the present step
        self.forecast: _Watching | None = None
        if self.outlook is not None and self.outlook.forecaster is not None:
            assert encoded is not None
            self.forecast = _Watching(self.outlook.forecaster, encoded)

    def see(self, features: np.ndarray) -> None:
        """Take the features [n, d] that the stream returned last."""
        if self.outlook is None:
            return
        until = (self.count + 1 + np.arange(len(features))) * self.step_s
        self.count += len(features)
        rows = self.outlook.answers(features, until)
        rows = np.concatenate([rows, self._surprise(features)[:, None]], axis=1)
        self.waiting = np.concatenate([self.waiting, rows])

    def token(self) -> None:
        """Add the oldest waiting token to the current step."""
        if self.outlook is None:
            return
        rows = np.concatenate([self.step_rows, self.waiting[:1]])
        told = np.array([of_step(rows)])  # one row is enough to remember
        self.step_rows, self.waiting = told, self.waiting[1:]

    def step(self) -> dict[str, object]:
        """End the current step and return its outlook."""
        told, self.step_rows = self.step_rows, self.step_rows[:0]
        return of_step(told).row(self.names) if len(told) else {}

    def now(self) -> dict[str, object]:
        """Return the outlook at the newest token."""
        newest = np.concatenate([self.step_rows, self.waiting])[-1:]
        return Foreseen(*newest[0].tolist()).row(self.names) if len(newest) else {}

    def _surprise(self, features: np.ndarray) -> np.ndarray:
        """Return the surprise at each token's segment, or the newest one while that goes on."""
        if self.forecast is None:
            return np.full(len(features), np.nan)
        first = self.forecast.segment
        told = self.forecast.ended(features).surprise.cpu().numpy()
        known = np.concatenate([[self.latest], told])
        own = np.clip(self.forecast.encoded.newest - first + 1, 0, len(told))
        self.latest = float(known[-1])
        return known[own]

    def state(self) -> State:
        """Return everything that later rows depend on."""
        if self.outlook is None:
            return {}
        state = {"counts": numbers(self.count, self.latest)}
        state["waiting"] = torch.from_numpy(self.waiting)
        state["step"] = torch.from_numpy(self.step_rows)
        if self.forecast is not None:
            held = self.forecast
            state["segment"] = numbers(held.segment, held.count)
            if held.before is not None:
                state["before"] = held.before
            if held.sums is not None:
                state["features"], state["normal"] = held.sums
        return state

    def restore(self, state: State) -> None:
        """Resume from `state`."""
        if self.outlook is None:
            return
        count, self.latest = state["counts"].tolist()
        self.count = int(count)
        self.waiting, self.step_rows = (state[part].numpy() for part in ("waiting", "step"))
        if self.forecast is not None:
            held = self.forecast
            device = held.encoded.encoder.mean.device
            held.segment, held.count = (int(n) for n in state["segment"].tolist())
            held.before = state["before"].to(device) if "before" in state else None
            if "features" in state:
                held.sums = state["features"].to(device), state["normal"].to(device)


# video, start, end, label, outlook
OutlookRow = tuple[str, float, float, str, Mapping[str, object]]


def write_outlook(path: Path, rows: Sequence[OutlookRow]) -> None:
    """Write one row per step: what comes next, progress and surprise as known at its end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        sheet = csv.writer(file, lineterminator="\n")
        sheet.writerow(["video", "start", "end", "label", *FIELDS])
        for video, start, end, label, told in rows:
            cells = [sheet_cell(str(told.get(name, ""))) for name in FIELDS]
            times = f"{start:.3f}", f"{end:.3f}"
            sheet.writerow([sheet_cell(video), *times, sheet_cell(label), *cells])
