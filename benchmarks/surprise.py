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

from benchmarks.workers import Row, row, save_rows
from pjepa.core.runs import attention_segments, runs, segment_means
from pjepa.core.tables import read_takes
from pjepa.metrics.bootstrap import PERCENTILES, group_weights
from pjepa.model.forecast import distance, whitening
from pjepa.streams.stream import StreamReader
from pjepa.takes.demo.world import SKIP, SWAP, Chain, build_chain
from pjepa.tools import paths
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
    found: np.ndarray = ((w @ pairs) * v).sum(axis=1) / (w.sum(axis=1) * v.sum(axis=1))
    return found


def broken_segments(chain: Chain, states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (breaks the procedure, is scored), bool [S] each; states are -1 while idle."""
    broken, scored = np.zeros(len(states), bool), np.zeros(len(states), bool)
    before = -1
    for place, state in enumerate(states):
        if state < 0:
            continue
        if before >= 0:
            scored[place] = True
            broken[place] = 0 < chain.transition[before, state] <= max(SKIP, SWAP)
        before = state
    return broken, scored


def bayes_surprise(chain: Chain, states: np.ndarray) -> np.ndarray:
    """Return - log p(primitive of a segment | primitives before it) [S]; 0 while idle."""
    belief, moved = chain.start.copy(), False
    found = np.zeros(len(states))
    for place, state in enumerate(states):
        if state < 0:
            continue
        belief = belief @ chain.transition if moved else belief
        seen = belief * (chain.primitive == chain.primitive[state])
        found[place] = -np.log(seen.sum())
        belief, moved = seen / seen.sum(), True
    return found


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
        found = units(take)
        return np.concatenate([[0.0], size(found[1:] - found[:-1] @ weight)])

    return lambda take: size(units(take)), last_step


def first_tokens(stream: StreamReader, take: str) -> np.ndarray:
    """Return the place of every segment's first token [S]."""
    return runs(attention_segments(stream.read_layout(take).segment))[0]


def main(
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the numbers.")
    ] = None,
) -> None:
    """Print one AUROC per row."""
    streams = paths.representation_streams(paths.representation("forecast"))
    if not streams or not paths.DEMO_TRUTH.exists():
        raise InputError("no forecast of the demo: run `dvc repro features` with pjepa.neighbours")
    told, stream, chain = StreamReader(streams[0]), StreamReader(paths.STREAM), build_chain()
    truth = dict(list(pd.read_parquet(paths.DEMO_TRUTH).groupby("take_id")))
    takes = read_takes(paths.TAKES_TABLE)
    of = {split: takes.loc[takes["split"] == split, "take_id"] for split in ("train", "test")}
    memoryless, last_step = control_scores(stream, of["train"])

    def states(take: str) -> np.ndarray:
        found: np.ndarray = truth[take]["state"].to_numpy()[first_tokens(stream, take)]
        return found

    rows: dict[str, Scores] = {
        "memoryless": memoryless,
        "last step": last_step,
        "surprise": lambda take: told.read(take).features[first_tokens(stream, take), -1],
        "bayes": lambda take: bayes_surprise(chain, states(take)),
    }
    flags = [broken_segments(chain, states(take)) for take in of["test"]]
    broken, scored = (np.concatenate(part) for part in zip(*flags, strict=True))
    print(f"{int(broken[scored].sum())} of {int(scored.sum())} test segments break the procedure")
    group = takes.set_index("take_id")["group"].astype(str)
    owner = [group[take] for take, flag in zip(of["test"], flags, strict=True) for _ in flag[0]]
    weights = group_weights(np.array(owner)[scored].tolist(), RESAMPLES, 0)
    cases: dict[str, Row] = {}
    for name, score in rows.items():
        found = np.concatenate([score(take) for take in of["test"]])[scored]
        values = 100 * auroc(found, broken[scored], weights)
        cases[name] = row(
            values[0], float(cases.get("memoryless", {"ours": values[0]})["ours"]), "%"
        )
        low, high = np.percentile(values[1:], PERCENTILES)
        print(f"{name:12}{values[0]:8.1f}  [{low:.1f}, {high:.1f}]", flush=True)
    save_rows(cases, json_file)


if __name__ == "__main__":
    typer.run(main)
