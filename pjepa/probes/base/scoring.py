"""The interface of every fitted probe, linear or trained."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from pjepa.core.runs import Span, attention_segments, runs
from pjepa.core.tables import Classes
from pjepa.metrics.segmentation import TakeStatistics, clip_counts, scores, take_statistics
from pjepa.probes.base.config import ProbeCommonConfig, SelectOn
from pjepa.streams.stream import StreamReader
from pjepa.ui.console import InputError

# The takes that probes are fitted on, chosen on and reported on.

Labels = Mapping[str, NDArray[np.int32]]


@dataclass(frozen=True)
class Roles:
    """Take ids by role, in table order; `groups` of the reported takes.

    `holdout` are the takes that choices are made on, whatever split they come from.
    """

    fit: tuple[str, ...]
    holdout: tuple[str, ...]
    reported: tuple[str, ...]
    split: str
    groups: Mapping[str, str]


def take_roles(takes: pd.DataFrame, labels: Labels) -> Roles:
    """Return the roles of the labelled takes of the takes table."""
    table = labelled(takes, labels)
    train, held = table["split"] == "train", table["holdout"].astype(bool)
    split = "test" if (table["split"] == "test").any() else "val"
    reported = table[table["split"] == split]
    for what, rows in (("train", table[train & ~held]), ("test or val", reported)):
        if rows.empty:
            raise InputError(f"no {what} take has labels; a probe needs some")
    groups = dict(zip(_ids(reported), reported["group"].astype(str), strict=True))
    fit, holdout = _ids(table[train & ~held]), _ids(table[train & held])
    return Roles(fit, holdout, _ids(reported), split, groups)


def habit_roles(roles: Roles, takes: pd.DataFrame, labels: Labels, select_on: SelectOn) -> Roles:
    """Return the roles under a published habit: fit on all of train, choose on another split.

    `holdout` changes nothing; with `last` there is nothing to choose on.
    """
    if select_on == "holdout":
        return roles
    table = labelled(takes, labels)
    chosen = () if select_on == "last" else _ids(table[table["split"] == select_on])
    if select_on != "last" and not chosen:
        raise InputError(f"probe.common.select_on {select_on}: no {select_on} take has labels")
    return replace(roles, fit=_ids(table[table["split"] == "train"]), holdout=chosen)


def labelled(takes: pd.DataFrame, labels: Labels) -> pd.DataFrame:
    """Return the rows of the takes that have a label."""
    has_label = [bool((labels.get(take, np.zeros(0)) >= 0).any()) for take in takes["take_id"]]
    return takes[has_label]


def _ids(rows: pd.DataFrame) -> tuple[str, ...]:
    return tuple(str(take) for take in rows["take_id"])


# How far into the future a probe's prediction can see.

Index = NDArray[np.int64]


@dataclass(frozen=True)
class Sight:
    """What a token's prediction depends on: its past, and to the end of ...

    `token` itself, its `segment`, its `block` of fixed length (from token 0), the whole `take`.
    """

    to: Literal["token", "segment", "block", "take"]
    block: int = 1

    @property
    def whole_take(self) -> bool:
        return self.to == "take"

    def ends(self, segments: Index) -> Index:
        """Return for every token the end (exclusive) of what its prediction depends on."""
        count = len(segments)
        index = np.arange(count)
        if self.to == "take":
            return np.full(count, count)
        if self.to == "segment":
            starts, lengths = runs(segments)
            return np.repeat(starts + lengths, lengths)
        return np.minimum((index // self.block + 1) * self.block, count)

    def lookahead_s(self, segments: Index, times: NDArray[np.float64]) -> float:
        """Return the longest time from a token to the last token it depends on."""
        return seconds_ahead(self.ends(segments), times)


def seconds_ahead(ends: Index, times: NDArray[np.float64]) -> float:
    """Return the longest time from a token to the last one before its end."""
    return float((times[ends - 1] - times).max(initial=0.0))


Features = NDArray[np.float32]
SegmentIds = NDArray[np.int64]


def probe_segments(segment: NDArray[np.int32]) -> SegmentIds:
    """Return segments [T] as probes see them: 0, 1, 2 ... along the take, gaps included.

    A take without any annotation has -1 throughout: it is not one giant segment.
    """
    if not (segment >= 0).any():
        return np.full(len(segment), -1, np.int64)
    return attention_segments(segment)


class Probe(Protocol):
    """A fitted map from `features [T, D]` and `segments [T]` (see `probe_segments`) to
    probabilities [T, C].
    """

    @property
    def details(self) -> dict[str, Any]:
        """Return how the probe was fitted, as JSON values."""

    @property
    def sight(self) -> Sight:
        """Return how far ahead a prediction depends on tokens."""

    def predict(self, features: Features, segments: SegmentIds | None = None) -> Features:
        """Return the probabilities of every token, given the whole take."""

    def predict_newest(
        self, features: Features, segments: SegmentIds, spans: Sequence[Span]
    ) -> Iterator[Features]:
        """Yield the probabilities of tokens start..end, given the prefix up to end."""

    def save(self, folder: Path) -> None:
        """Write `model.safetensors` and `config.json`."""


# A fitted probe's predictions and statistics on the reported takes.


ReadTake = Callable[[str], tuple[Features, SegmentIds]]  # a take's features [T, D] and segments


def take_reader(reader: StreamReader) -> ReadTake:
    """Return how the takes of a stream are read."""

    def read(take_id: str) -> tuple[Features, SegmentIds]:
        take = reader.read(take_id)
        return take.features, probe_segments(take.segment)

    return read


@dataclass(frozen=True)
class Prediction:
    """One take's most probable label per token and its probability."""

    labels: NDArray[np.int64]
    scores: NDArray[np.float32]


@dataclass(frozen=True)
class FitResult:
    """One fit, its predictions on the reported takes, and their statistics."""

    probe: Probe
    predictions: Mapping[str, Prediction]
    statistics: Mapping[str, TakeStatistics]

    def metrics(self) -> dict[str, float]:
        """Return every metric in percent."""
        values = scores(list(self.statistics.values()))
        return {name: float(value) for name, value in values.items()}


@dataclass(frozen=True)
class LabelledTake:
    """One take's features [T, D] and labels [T]; negative labels are unknown."""

    features: NDArray[np.float32]
    labels: NDArray[np.int64]


@dataclass(frozen=True)
class Targets:
    """What a probe is asked for: labels of `classes` kinds, and who is fitted and reported on."""

    labels: Labels
    roles: Roles
    classes: int
    background: int | None


def score_probe(probe: Probe, read: ReadTake, targets: Targets) -> FitResult:
    """Return the predictions and statistics of a probe on the reported takes."""
    predictions, statistics = {}, {}
    for take in targets.roles.reported:
        features, segments = read(take)
        labels = labelled_take(take, features, targets.labels).labels
        probability = probe.predict(features, segments)  # [T, C]
        predictions[take] = Prediction(probability.argmax(1), probability.max(1))
        statistics[take] = scored(labels, probability, segments, targets.background)
    return FitResult(probe, predictions, statistics)


def scored(
    labels: NDArray[np.int64],
    probability: NDArray[np.float32],
    segments: NDArray[np.int64],
    background: int | None,
) -> TakeStatistics:
    """Return one take's statistics, clips included, of probabilities [T, C]."""
    statistics = take_statistics(labels, probability.argmax(1), background)
    clips, correct = clip_counts(labels, probability, segments, background)
    return replace(statistics, clips=clips, clips_correct=correct)


def labelled_take(take: str, features: NDArray[np.float32], labels: Labels) -> LabelledTake:
    """Return a take's features with its labels; they must have one length."""
    if len(features) != len(labels[take]):
        raise InputError(
            f"take {take}: {len(features)} tokens but {len(labels[take])} labels; "
            "re-run both stages"
        )
    return LabelledTake(features, labels[take].astype(np.int64))


# The inputs of a cell, and the result of each of its fits.


@dataclass(frozen=True)
class CellData:
    """The inputs of a cell: the variants of a representation, labels, and roles of takes."""

    probe: str
    representation: str
    readers: tuple[StreamReader, ...]
    labels: Labels
    takes: pd.DataFrame
    classes: Classes
    roles: Roles
    common: ProbeCommonConfig

    @property
    def name(self) -> str:
        return f"probe {self.probe} on {self.representation}"

    @property
    def targets(self) -> Targets:
        """Return the targets of the probe."""
        return Targets(self.labels, self.roles, len(self.classes.names), self.classes.background)


@dataclass(frozen=True)
class Run:
    """One fit: which way, on which variant, with which seed (None: the fit draws nothing)."""

    fit: str
    variant: int
    seed: int | None
    result: FitResult

    def to_dict(self) -> dict[str, Any]:
        """Return everything about the run as JSON values."""
        return {
            "variant": self.variant,
            "seed": self.seed,
            "metrics": self.result.metrics(),
            "fit": self.result.probe.details,
            "statistics": {take: asdict(row) for take, row in self.result.statistics.items()},
        }


def by_fit(runs: list[Run]) -> dict[str, list[Run]]:
    """Return the runs of every fit; the first fit is the one that tables show."""
    names = dict.fromkeys(run.fit for run in runs)
    return {name: [run for run in runs if run.fit == name] for name in names}
