"""The linear probe over the epochs of pretraining: what `select.by: holdout` would have seen.

Nothing reads the curve but the report, so its labels reach no encoder. Two flat lines are for
comparison: the raw stream, and the same encoder untrained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from pjepa.curve.file import REFERENCES, ProbeCurve
from pjepa.encoder.encoder import ProcedureEncoder
from pjepa.features.encoded import encoded, random_encoder
from pjepa.select.selection import Judge, JudgedTakes, snapshot_scores
from pjepa.streams.store import Take

DIGITS = 4

Item = TypeVar("Item")


def probe_curve(snapshots: Sequence[Path], judge: Judge, work: Path) -> ProbeCurve:
    """Return the scores of the snapshots, the raw stream and the untrained encoder."""
    at_once = 2 if judge.config.has_spare_core() else 1  # of `curve.takes` at most
    scores = snapshot_scores(snapshots, judge, work, "curve", at_once)
    last = ProcedureEncoder.from_pretrained(snapshots[-1], judge.config.device)
    untrained = random_encoder(last.config, last, seed=0)
    found = (judge.score(_as_it_is), judge.score(partial(encoded, untrained)))
    references = dict(zip(REFERENCES, found, strict=True))
    return ProbeCurve(
        {epoch: round(score, DIGITS) for epoch, score in scores.items()},
        {name: round(score, DIGITS) for name, score in references.items()},
        len(judge.takes.fit),
        len(judge.takes.scored),
    )


def thinned(judge: Judge, most: int) -> Judge:
    """Return the judge with at most so many takes for fitting and as many for scoring."""
    takes = judge.takes
    few = (evenly(takes.fit, most), evenly(takes.tune, most), evenly(takes.scored, most))
    return replace(judge, takes=JudgedTakes(*map(tuple, few)))


def evenly(items: Sequence[Item], most: int) -> list[Item]:
    """Return at most so many items in order, evenly spaced, including the last."""
    count = min(most, len(items))
    places = np.ceil(np.arange(1, count + 1) * (len(items) / max(count, 1))).astype(int) - 1
    return [items[place] for place in places.tolist()]


def _as_it_is(take: Take) -> np.ndarray:
    return take.features.astype(np.float32)
