"""Choosing the snapshot that becomes the encoder: the one with the best linear probe.

The paper probes every 20 epochs and keeps the best (Sec. 4). Unlike the paper, the probe is fitted
to convergence, so that the snapshot is judged and not the probe's schedule, and `holdout` scores
on train groups that pretraining never saw, which leaves validation unseen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from pjepa.core.runs import evenly
from pjepa.core.tables import Classes, read_classes, read_takes
from pjepa.features.controls import Represent
from pjepa.features.encoded import encoded, random_encoder
from pjepa.metrics.segmentation import COMBINED, combined_score, segmentation_scores
from pjepa.model.encoder import ProcedureEncoder
from pjepa.probes.base.scoring import LabelledTake, Labels, labelled, labelled_take
from pjepa.probes.linear.config import LinearConfig
from pjepa.probes.linear.probe import fit_converged
from pjepa.select.config import SelectConfig
from pjepa.select.curve import REFERENCES, ProbeCurve
from pjepa.storage.reading import file_sha256, fingerprint, read_json
from pjepa.storage.writing import write_json
from pjepa.streams.stream import StreamReader, Take, read_labels
from pjepa.ui.console import InputError, say


class NothingToJudge(InputError):
    """The error when takes lack the labels that a probe is fitted or scored on."""


@dataclass(frozen=True)
class JudgedTakes:
    """Take ids: the probe is fitted on `fit`, its L2 chosen on `tune`, its score is `scored`'s."""

    fit: tuple[str, ...]
    tune: tuple[str, ...]
    scored: tuple[str, ...]


def judged_takes(takes: pd.DataFrame, labels: Labels, by: str) -> JudgedTakes:
    """Return takes to fit on (train without hold-out) and to score on (hold-out or val).

    L2 is chosen on the hold-out; where there is none, on val as well.
    """
    table = labelled(takes, labels)
    train, held = table["split"] == "train", table["holdout"].astype(bool)
    rows = {"train": train & ~held, "holdout": train & held, "val": table["split"] == "val"}
    ids = {name: tuple(table.loc[chosen, "take_id"].astype(str)) for name, chosen in rows.items()}
    for name in ("train", by):
        if not ids[name]:
            raise NothingToJudge(f"select.by {by}: no {name} take has labels; use select.by=last")
    return JudgedTakes(ids["train"], ids["holdout"] or ids[by], ids[by])


@dataclass(frozen=True)
class Judge:
    """Everything needed to score an encoder; the same for every snapshot."""

    stream: StreamReader
    labels: Labels
    takes: JudgedTakes
    classes: Classes
    config: SelectConfig

    def score(self, represent: Represent) -> float:
        """Return `select.metric` of a converged linear probe on a representation of the stream."""
        torch.set_num_threads(self.config.threads)
        fit = self._represented(represent, self.takes.fit)
        tune = self._represented(represent, self.takes.tune)
        classes = len(self.classes.names)
        probe = fit_converged(fit, tune, classes, LinearConfig(), self.config.device)
        del fit
        same = self.takes.scored == self.takes.tune
        scored = tune if same else self._represented(represent, self.takes.scored)
        metrics = segmentation_scores(
            [take.labels for take in scored],
            [probe.logits(take.features).argmax(1).cpu().numpy() for take in scored],
            self.classes.background,
        )
        return selection_score(metrics, self.config.metric)

    def _represented(self, represent: Represent, takes: Sequence[str]) -> list[LabelledTake]:
        return [self._represented_take(represent, take) for take in takes]

    def _represented_take(self, represent: Represent, take: str) -> LabelledTake:
        found = labelled_take(take, represent(self.stream.read(take)), self.labels)
        if not np.isfinite(found.features).all():
            raise InputError(f"take {take}: its features are not finite")
        return found


def read_judge(
    stream: Path, labels: Path, takes: Path, classes: Path, config: SelectConfig
) -> Judge:
    """Return the probe's inputs: the stream, its labels, and the takes tables."""
    known = read_labels(labels)
    judged = judged_takes(read_takes(takes), known, config.by)
    return Judge(StreamReader(stream), known, judged, read_classes(classes), config)


def selection_score(metrics: Mapping[str, float], metric: str) -> float:
    """Return `acc` in percent, or `combined`: the authors' sum of six scores from 0 to 1."""
    if metric == "acc":
        return metrics["acc"]
    return combined_score(metrics) * len(COMBINED) / 100.0


def snapshot_scores(
    snapshots: Sequence[Path], judge: Judge, work: Path, stage: str = "select", at_once: int = 1
) -> dict[int, float]:
    """Return the score of every snapshot by epoch; those a killed run left in `work` are kept."""
    scores: dict[int, float] = {}
    with ThreadPoolExecutor(at_once) as pool:
        found = pool.map(partial(_snapshot_score, judge=judge, work=work), snapshots)
        for folder, score in zip(snapshots, found, strict=True):
            epoch = int(folder.name)
            scores[epoch] = score
            best = best_epoch(scores)
            say(
                f"{stage}: {len(scores)}/{len(snapshots)} snapshots, epoch {epoch}: "
                f"{judge.config.metric} {score:.4g} on {judge.config.by} "
                f"(best {scores[best]:.4g} at epoch {best})"
            )
    return scores


def _snapshot_score(folder: Path, judge: Judge, work: Path) -> float:
    """Return the score of a snapshot, from `work` if it is there."""
    files = [folder / "model.safetensors", folder / "config.json"]
    kept = work / f"{fingerprint([file_sha256(path) for path in files])}.json"
    if not kept.exists():
        encoder = ProcedureEncoder.from_pretrained(folder, judge.config.device)
        write_json(kept, judge.score(partial(encoded, encoder)))
    return float(read_json(kept))


def best_epoch(scores: Mapping[int, float]) -> int:
    """Return the epoch with the highest score; the latest of equal ones."""
    return max(scores, key=lambda epoch: (scores[epoch], epoch))


# The file of the linear probe over epochs: results/curve.


# The linear probe over the epochs of pretraining: what `select.by: holdout` would have seen.

DIGITS = 4


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


def _as_it_is(take: Take) -> np.ndarray:
    return take.features.astype(np.float32)
