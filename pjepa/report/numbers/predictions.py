"""What a cell predicted for every token of the reported takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from pjepa.core.runs import Spans, label_spans
from pjepa.core.tables import readable_table


@dataclass(frozen=True)
class TakePrediction:
    """One take: time, true class, predicted class and its probability, per token [T]."""

    times: np.ndarray
    labels: np.ndarray
    predicted: np.ndarray
    scores: np.ndarray

    @property
    def step_s(self) -> float:
        """Return how long a token lasts."""
        return float(np.median(np.diff(self.times))) if len(self.times) > 1 else 1.0

    @property
    def end_s(self) -> float:
        """Return when the last token ends."""
        return float(self.times[-1]) + self.step_s

    def true_spans(self) -> Spans:
        """Return the true classes as spans of time."""
        return label_spans(self.labels, self.times, self.step_s)

    def predicted_spans(self) -> Spans:
        """Return the predicted classes as spans of time."""
        return label_spans(self.predicted, self.times, self.step_s)


Predictions = Mapping[str, TakePrediction]  # by take id, in the table's order


def read_predictions(folder: Path) -> Predictions:
    """Return the predictions of a cell's first run, by take."""
    path = folder / "predictions.parquet"
    with readable_table(path, "probe"):
        frame = pq.read_table(path).to_pandas()
        return {
            str(take): TakePrediction(
                part["time_s"].to_numpy(np.float64),
                part["label"].to_numpy(np.int64),
                part["prediction"].to_numpy(np.int64),
                part["score"].to_numpy(np.float64),
            )
            for take, part in frame.groupby("take_id", sort=False)
        }
