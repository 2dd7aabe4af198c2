"""A cell's outputs for people and for `pjepa predict`: predictions, segments and the model."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from pjepa.core.runs import label_spans
from pjepa.core.tables import Classes, write_classes
from pjepa.core.text import sheet_cell
from pjepa.probes.base.roles import Labels
from pjepa.probes.base.scoring import FitResult, Prediction
from pjepa.streams.store import StreamReader

PREDICTIONS = pa.schema(
    {
        "take_id": pa.string(),
        "time_s": pa.float64(),
        "label": pa.int32(),
        "prediction": pa.int32(),
        "score": pa.float32(),
    }
)


def write_predictions(
    folder: Path, result: FitResult, reader: StreamReader, labels: Labels, classes: Classes
) -> None:
    """Write `predictions.parquet`, `segments.csv` and `model/` of one fit."""
    result.probe.save(folder / "model")
    write_classes(folder / "model" / "classes.json", classes)
    with (
        pq.ParquetWriter(folder / "predictions.parquet", PREDICTIONS) as table,
        (folder / "segments.csv").open("w", newline="", encoding="utf-8") as file,
    ):
        sheet = csv.writer(file, lineterminator="\n")
        sheet.writerow(["take", "start", "end", "label", "score"])
        for take, prediction in result.predictions.items():
            times = reader.read_layout(take).times
            columns = [
                [take] * len(times),
                times,
                labels[take],
                prediction.labels,
                prediction.scores,
            ]
            arrays = [
                pa.array(column, type=kind)
                for column, kind in zip(columns, PREDICTIONS.types, strict=True)
            ]
            table.write_table(pa.Table.from_arrays(arrays, schema=PREDICTIONS))
            for row in segment_rows(prediction, times, 1 / reader.info.fps, classes.names):
                sheet.writerow([sheet_cell(take), *row])


def segment_rows(
    prediction: Prediction, times: NDArray[np.float64], step: float, names: Sequence[str]
) -> list[list[str]]:
    """Return start, end, label name and mean score of every predicted run."""
    if not len(times):
        return []
    spans = label_spans(prediction.labels, times, step)
    means = np.add.reduceat(prediction.scores, spans.first) / (spans.end - spans.first)
    columns = (spans.begin_s, spans.until_s, spans.labels, means)
    return [
        [f"{begin:.3f}", f"{until:.3f}", sheet_cell(names[label]), f"{mean:.4f}"]
        for begin, until, label, mean in zip(*columns, strict=True)
    ]
