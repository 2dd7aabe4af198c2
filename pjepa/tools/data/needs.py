"""Findings about what later stages need of the takes: to pretrain, fit, choose and score on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pandas as pd

from pjepa.core.tables import pretraining_takes
from pjepa.probes.base.config import TrainedConfig
from pjepa.takes.source import Source, held_groups
from pjepa.tokens.shipped import is_too_slow
from pjepa.tools.data.finding import Finding
from pjepa.tools.params import Params


def unmet_needs(source: Source, params: Params) -> Iterator[Finding]:
    """Yield what would stop a later stage under these params."""
    held = held_groups(source, params.data.holdout, params.data.seed)
    takes = pd.DataFrame(source.takes)
    takes["holdout"] = (takes["split"] == "train") & takes["group"].isin(held)
    yield from _slow_features(source, params.tokens.fps)
    if not pretraining_takes(takes):
        yield Finding(
            "error",
            "no take to pretrain on: train and pretrain are empty, or all held out (data.holdout)",
        )
    if source.segments:
        yield from _unscored(source)
        yield from _unfitted(source, takes, params)


def _slow_features(source: Source, fps: float) -> Iterator[Finding]:
    """Yield the shipped features that come at a lower rate than the tokens."""
    slow = [row for row in source.videos if row.features and is_too_slow(row, fps)]
    if slow:
        most = min(row.fps for row in slow)
        yield Finding(
            "error",
            f"{len(slow)} takes with fewer features per second than tokens.fps {fps:g}; "
            f"set tokens.fps={most:g} or less",
            tuple(f"{row.take_id} ({row.fps:g})" for row in slow),
        )


def _unscored(source: Source) -> Iterator[Finding]:
    """Yield that the reported split shows no class but background; without labels, none at all."""
    splits = {take["take_id"]: take["split"] for take in source.takes}
    shown: dict[str, set[int]] = defaultdict(set)
    for segment in source.segments:
        if segment.label >= 0:
            shown[splits[segment.take_id]].add(segment.label)
    split = "test" if shown["test"] else "val"
    if not shown[split]:
        yield Finding("error", "no take of val or test has labels: probes have nothing to score")
    elif shown[split] == {source.classes.background}:
        text = f"the takes of {split} show background only: probes have nothing to score"
        yield Finding("error", text)


def _unfitted(source: Source, takes: pd.DataFrame, params: Params) -> Iterator[Finding]:
    """Yield that no labelled take is there to fit probes on, or to choose on."""
    labelled = {segment.take_id for segment in source.segments if segment.label >= 0}
    train = takes[(takes["split"] == "train") & takes["take_id"].isin(labelled)]
    remedies = _choosing(params)
    if train.empty:
        yield Finding("error", "no train take has labels: probes have nothing to fit")
    elif remedies and not train["holdout"].any():
        who, instead = ", ".join(remedies), " and ".join(dict.fromkeys(remedies.values()))
        yield Finding(
            "error",
            f"no labelled train take is held out to choose on ({who}); label more groups of "
            f"train, each class in two or more, or set {instead}",
        )


def _choosing(params: Params) -> dict[str, str]:
    """Return the probes that choose on held-out train takes, and what makes each do without."""
    found: dict[str, str] = {}
    if params.probe.common.select_on != "holdout":  # type: ignore[attr-defined]
        return found
    for name in params.cells.probes:
        config = getattr(params.probe, name)
        if isinstance(config, TrainedConfig):
            found[name] = "probe.common.select_on=last"
        elif name == "linear" and len(config.l2) > 1:
            found[name] = "probe.linear.l2 to one strength"
    return found
