"""Order errors on the demo: `python -m benchmarks.surprise [--json FILE]`.

A segment of a test take breaks the procedure when a step was left out before it, or when it is done
one place too soon. AUROC (percent) of finding such segments by

| row           | the score of a segment                                                       |
|---------------|------------------------------------------------------------------------------|
| `surprise`    | last column of the representation `forecast`                                 |
| `memoryless`  | how far its own mean token lies from the mean of all: no past at all         |
| `last step`   | error of a ridge regression from the mean token of the segment before        |
| `bayes`       | - log p(its primitive | true primitives so far), the grammar's own surprise  |

Errors and distances are those of `pjepa/model/forecast.py` for every row, and the reference of
every row is `memoryless`. Pauses, and the first step of a take, are not scored.
Intervals are 95 %, from a bootstrap over groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
import typer

from benchmarks.workers import Table, row
from pjepa.core.runs import attention_segments, runs, segment_means
from pjepa.core.tables import read_takes
from pjepa.metrics.bootstrap import PERCENTILES, group_weights
from pjepa.model.forecast import distance, whitening
from pjepa.streams.stream import StreamReader
from pjepa.takes.demo.world import SKIP, SWAP, Chain, build_chain
from pjepa.tools import paths
from pjepa.tools.questions import beliefs
from pjepa.ui.console import InputError

RIDGE, RESAMPLES = 1.0, 2000
Scores = Callable[[str], np.ndarray]  # take -> one number per segment [S]


def auroc(scores: np.ndarray, positive: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the share of (positive, other) pairs in order for every row of weights [R, S].

    Ties count half.
    """
    ours, rest = scores[positive][:, None], scores[~positive][None]
    pairs = (ours > rest) + 0.5 * (ours == rest)  # [positive, other]
    w, v = weights[:, positive], weights[:, ~positive]
    return np.asarray(((w @ pairs) * v).sum(axis=1) / (w.sum(axis=1) * v.sum(axis=1)))


def broken_segments(chain: Chain, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (breaks the procedure, is scored), bool [S] each; states are -1 while idle."""
    broken, scored = np.zeros(len(states), bool), np.zeros(len(states), bool)
    done = np.flatnonzero(states >= 0)
    moves = chain.transition[states[done[:-1]], states[done[1:]]]
    scored[done[1:]] = True
    broken[done[1:]] = (moves > 0) & (moves <= max(SKIP, SWAP))
    return broken, scored


def bayes_surprise(chain: Chain, states: np.ndarray) -> np.ndarray:
    """Return - log p(primitive of a segment | primitives before it) [S]; 0 while idle."""
    surprise = np.zeros(len(states))
    for index, (expected, _) in enumerate(beliefs(chain, states)):
        if states[index] >= 0:
            alike = chain.primitive == chain.primitive[states[index]]
            surprise[index] = -np.log(expected[alike].sum())
    return surprise


def take_means(stream: StreamReader, take: str) -> np.ndarray:
    """Return the mean token of every segment [S, D]."""
    return segment_means(stream.read(take).features, stream.read_layout(take).segment)


def control_scores(stream: StreamReader, train: Iterable[str]) -> tuple[Scores, Scores]:
    """Return (memoryless, last step), both fitted on train takes."""
    means = [take_means(stream, take) for take in train]
    every = np.concatenate(means).astype(np.float64)
    centre, spread = every.mean(axis=0), every.std(axis=0) + 1e-6
    unit = [(m - centre) / spread for m in means]
    x, y = np.concatenate([m[:-1] for m in unit]), np.concatenate([m[1:] for m in unit])
    weight = np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ y)
    factor = whitening(torch.from_numpy(np.cov(np.concatenate(unit).T, bias=True)))

    def units(take: str) -> np.ndarray:
        return np.asarray((take_means(stream, take) - centre) / spread)

    def size(errors: np.ndarray) -> np.ndarray:
        return distance(torch.from_numpy(errors), factor).numpy()

    def last_step(take: str) -> np.ndarray:
        mine = units(take)
        return np.concatenate([[0.0], size(mine[1:] - mine[:-1] @ weight)])

    return lambda take: size(units(take)), last_step


def main(
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the numbers.")
    ] = None,
) -> None:
    """Print one AUROC per row."""
    streams = paths.representation_streams(paths.representation("forecast"))
    if not streams or not paths.DEMO_TRUTH.exists():
        raise InputError("no forecast of the demo: run `dvc repro features` with pjepa.neighbours")
    forecast, stream, chain = StreamReader(streams[0]), StreamReader(paths.STREAM), build_chain()
    truth = dict(list(pd.read_parquet(paths.DEMO_TRUTH).groupby("take_id")))
    takes = read_takes(paths.TAKES_TABLE)
    train, test = (takes.loc[takes["split"] == split, "take_id"] for split in ("train", "test"))
    firsts = {t: runs(attention_segments(stream.read_layout(t).segment))[0] for t in test}
    states = {take: truth[take]["state"].to_numpy()[first] for take, first in firsts.items()}
    memoryless, last_step = control_scores(stream, train)
    cases: dict[str, Scores] = {
        "memoryless": memoryless,
        "last step": last_step,
        "surprise": lambda take: forecast.read(take).features[firsts[take], -1],
        "bayes": lambda take: bayes_surprise(chain, states[take]),
    }
    flags = [broken_segments(chain, states[take]) for take in test]
    broken, scored = (np.concatenate(each) for each in zip(*flags, strict=True))
    print(f"{int(broken[scored].sum())} of {int(scored.sum())} test segments break the procedure")
    group = takes.set_index("take_id")["group"].astype(str)
    owner = np.repeat([group[take] for take in test], [len(states[take]) for take in test])
    weights = group_weights(owner[scored].tolist(), RESAMPLES, 0)
    table, reference = Table(), 0.0
    for name, score in cases.items():
        values = np.concatenate([score(take) for take in test])[scored]
        areas = 100 * auroc(values, broken[scored], weights)
        low, high = np.percentile(areas[1:], PERCENTILES)
        reference = reference or float(areas[0])
        table.add(f"{name} [{low:.1f}, {high:.1f}]", row(float(areas[0]), reference, "%"))
    table.save(json_file)


if __name__ == "__main__":
    typer.run(main)
