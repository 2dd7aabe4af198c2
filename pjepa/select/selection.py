"""Choosing the snapshot that becomes the encoder: the one with the best linear probe.

The paper probes every 20 epochs and keeps the best (Sec. 4). Unlike the paper, the probe is fitted
to convergence, so that the snapshot is judged and not the probe's schedule, and `holdout` scores
on train groups that pretraining never saw, which leaves validation unseen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import torch

from pjepa.core.machine import MachineSection
from pjepa.core.runs import evenly
from pjepa.core.tables import Classes, read_classes, read_takes
from pjepa.features.controls import Represent
from pjepa.features.encoded import encoded, random_encoder
from pjepa.metrics.segmentation import COMBINED, combined_score, segmentation_scores
from pjepa.model.encoder import ProcedureEncoder
from pjepa.probes.base.scoring import LabelledTake, Labels, labelled, labelled_take
from pjepa.probes.linear.config import LinearConfig
from pjepa.probes.linear.probe import fit_converged
from pjepa.select.curve import REFERENCES, ProbeCurve
from pjepa.storage.reading import file_sha256, fingerprint, read_json
from pjepa.storage.writing import write_json
from pjepa.streams.stream import StreamReader, Take, read_labels
from pjepa.ui.console import InputError, say

Split = Literal["holdout", "val"]
Metric = Literal["acc", "combined"]
DIGITS = 4  # of a curve


class NothingToJudge(InputError):
    """The error when takes lack the labels that a probe is fitted or scored on."""


@dataclass(frozen=True)
class JudgedTakes:
    """Take ids: the probe is fitted on `fit`, its L2 chosen on `tune`, its score is `scored`'s."""

    by: Split
    fit: Sequence[str]
    tune: Sequence[str]
    scored: Sequence[str]


def judged_takes(
    takes: pd.DataFrame, labels: Labels, by: Split, most: int | None = None
) -> JudgedTakes:
    """Return takes to fit on (train without hold-out) and to score on, at most so many of each.

    L2 is chosen on the hold-out; where there is none, on val as well.
    """
    table = labelled(takes, labels)
    train, held = table["split"] == "train", table["holdout"].astype(bool)
    rows = {"train": train & ~held, "holdout": train & held, "val": table["split"] == "val"}
    ids = {name: list(table.loc[chosen, "take_id"].astype(str)) for name, chosen in rows.items()}
    for name in ("train", by):
        if not ids[name]:
            raise NothingToJudge(f"select.by {by}: no {name} take has labels; use select.by=last")
    ids = {name: evenly(chosen, most or len(chosen)) for name, chosen in ids.items()}
    return JudgedTakes(by, ids["train"], ids["holdout"] or ids[by], ids[by])


@dataclass(frozen=True)
class Judge:
    """What scores an encoder by a linear probe; the same for every snapshot."""

    stream: StreamReader
    labels: Labels
    classes: Classes
    takes: JudgedTakes
    metric: Metric
    machine: MachineSection

    def score(self, represent: Represent) -> float:
        """Return the metric of a converged linear probe on a representation of the stream."""
        torch.set_num_threads(self.machine.threads)  # of the thread that scores
        fit = self._represented(represent, self.takes.fit)
        tune = self._represented(represent, self.takes.tune)
        classes = len(self.classes.names)
        probe = fit_converged(fit, tune, classes, LinearConfig(), self.machine.device)
        del fit
        same = self.takes.scored == self.takes.tune
        scored = tune if same else self._represented(represent, self.takes.scored)
        metrics = segmentation_scores(
            [take.labels for take in scored],
            [probe.logits(take.features).argmax(1).cpu().numpy() for take in scored],
            self.classes.background,
        )
        return selection_score(metrics, self.metric)

    def _represented(self, represent: Represent, takes: Sequence[str]) -> list[LabelledTake]:
        rows = []
        for take in takes:
            rows.append(labelled_take(take, represent(self.stream.read(take)), self.labels))
            if not np.isfinite(rows[-1].features).all():
                raise InputError(f"take {take}: its features are not finite")
        return rows


def read_judge(
    files: tuple[Path, Path, Path, Path],
    by: Split,
    metric: Metric,
    machine: MachineSection,
    most: int | None = None,
) -> Judge:
    """Return a judge; `files` are the stream, its labels, the takes and the classes."""
    stream, labels, takes, classes = files
    known = read_labels(labels)
    judged = judged_takes(read_takes(takes), known, by, most)
    return Judge(StreamReader(stream), known, read_classes(classes), judged, metric, machine)


def selection_score(metrics: Mapping[str, float], metric: Metric) -> float:
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
        scored = pool.map(partial(_snapshot_score, judge=judge, work=work), snapshots)
        for folder, score in zip(snapshots, scored, strict=True):
            epoch = int(folder.name)
            scores[epoch] = score
            best = best_epoch(scores)
            say(
                f"{stage}: {len(scores)}/{len(snapshots)} snapshots, epoch {epoch}: "
                f"{judge.metric} {score:.4g} on {judge.takes.by} "
                f"(best {scores[best]:.4g} at epoch {best})"
            )
    return scores


def _snapshot_score(folder: Path, judge: Judge, work: Path) -> float:
    """Return the score of a snapshot, from `work` if it is there."""
    files = [folder / "model.safetensors", folder / "config.json"]
    file = work / f"{fingerprint([file_sha256(path) for path in files])}.json"
    if not file.exists():
        encoder = ProcedureEncoder.from_pretrained(folder, judge.machine.device)
        write_json(file, judge.score(partial(encoded, encoder)))
    return float(read_json(file))


def best_epoch(scores: Mapping[int, float]) -> int:
    """Return the epoch with the highest score; the latest of equal ones."""
    return max(scores, key=lambda epoch: (scores[epoch], epoch))


def probe_curve(snapshots: Sequence[Path], judge: Judge, work: Path) -> ProbeCurve:
    """Return the scores of the snapshots, the raw stream and the untrained encoder."""
    at_once = 2 if judge.machine.has_spare_core() else 1  # of `curve.takes` at most
    scores = snapshot_scores(snapshots, judge, work, "curve", at_once)
    last = ProcedureEncoder.from_pretrained(snapshots[-1], judge.machine.device)
    untrained = random_encoder(last.config, last, seed=0)
    flat = (judge.score(_raw), judge.score(partial(encoded, untrained)))
    return ProbeCurve(
        {epoch: round(score, DIGITS) for epoch, score in scores.items()},
        {name: round(score, DIGITS) for name, score in zip(REFERENCES, flat, strict=True)},
        len(judge.takes.fit),
        len(judge.takes.scored),
    )


def _raw(take: Take) -> np.ndarray:
    return take.features.astype(np.float32)
