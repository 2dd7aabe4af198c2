"""Steps without flicker: `python -m benchmarks.steps [--project FOLDER] [--json FILE]`.

What `pjepa predict --smooth` and `--min-step` do to the metrics of a finished run, on the tokens of
its test takes, with segments as a new video has them (found or fixed, never annotated). The
reference of every row is the first one, the most likely class of every token. Seconds shorter than
a token do nothing.

Also: how many test takes `predict` would call unlike the training takes.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import typer

from benchmarks.workers import Row, row, save_rows
from pjepa.core.runs import runs
from pjepa.live.models import Models, Wanted, load_models, represented
from pjepa.live.steps import AS_SCORED, Cleaning, cleaned_labels
from pjepa.metrics.segmentation import segmentation_scores
from pjepa.streams.stream import read_labels, read_stream

SECONDS = (0.0, 1.0, 2.0, 4.0)
METRICS = ("acc", "edit", "f1_10", "f1_25", "f1_50")


def take_scores(
    models: Models, project: Path
) -> tuple[list[np.ndarray], list[np.ndarray], list[float]]:
    """Return probabilities [T, C], labels [T] and distance from training of every test take."""
    takes = pd.read_parquet(project / "data/takes/takes.parquet")
    stream = read_stream(project / "data/tokens/stream.parquet")
    truth = read_labels(project / "data/tokens/labels.parquet")
    scores, labels, apart = [], [], []
    for name in takes["take_id"][takes["split"] == "test"]:
        tokens = stream.read(name).features
        scores.append(models.probe.predict(*represented(models, tokens, name)))
        labels.append(truth[name])
        if models.familiar is not None:
            apart.append(models.familiar.distance(tokens))
    return scores, labels, apart


def measured(
    models: Models, scores: list[np.ndarray], labels: list[np.ndarray], cleaning: Cleaning
) -> dict[str, float]:
    """Return the metrics with this cleaning, the steps of a take and the shortest one's seconds."""
    step_s = 1 / (models.patches.tokens_fps * models.pooler.facts.per_step)
    found = [cleaned_labels(part, step_s, cleaning) for part in scores]
    metrics = segmentation_scores(labels, found, models.classes.background)
    lengths = [runs(part)[1] for part in found]
    return {
        **{name: metrics[name] for name in METRICS},
        "steps a take": float(np.mean([len(part) for part in lengths])),
        "shortest s": step_s * min(int(part.min()) for part in lengths),
    }


def main(
    project: Annotated[Path, typer.Option(help="A finished run.")] = Path(),
    probe: Annotated[str, typer.Option(help="A cell of it.")] = "linear-pjepa",
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the table.")] = None,
) -> None:
    """Print the metrics for every pair of seconds."""
    models = load_models(
        Wanted(
            project / "models", project / "results/probe" / probe, as_trained=True,
            training=project / "data/tokens/stream.parquet",
            takes=project / "data/takes/takes.parquet",
        )
    )  # fmt: skip
    scores, labels, apart = take_scores(models, project)
    plain = measured(models, scores, labels, AS_SCORED)
    true = [len(runs(part)[0]) for part in labels]
    seconds = sum(map(len, labels)) / models.patches.tokens_fps / models.pooler.facts.per_step
    print(
        f"{probe}, {len(scores)} test takes, {models.rule.kind} segments; true steps: "
        f"{np.mean(true):.1f} a take, {seconds / sum(true):.1f} s each"
    )
    print("".join(f"{name:>13}" for name in ("smooth s", "min-step s", *plain)))
    rows: dict[str, Row] = {}
    for smooth, least in product(SECONDS, SECONDS):
        found = measured(models, scores, labels, Cleaning(smooth, least))
        print("".join(f"{value:13.1f}" for value in (smooth, least, *found.values())))
        for name in METRICS:
            case = f"smooth {smooth:g}, min-step {least:g}: {name}"
            rows[case] = row(found[name], plain[name], "%")
    if models.familiar is not None:
        far = sum(d > models.familiar.limit for d in apart)
        print(f"{far} of {len(apart)} test takes are further than {models.familiar.limit:.2f}, the "
              f"largest distance among {models.familiar.takes} training takes")  # fmt: skip
    save_rows(rows, json_file)


if __name__ == "__main__":
    typer.run(main)
