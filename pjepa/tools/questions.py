"""`pjepa questions`: what comes next, and how far along is it, on the outputs of the pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch

from pjepa.core.runs import attention_segments, runs
from pjepa.core.section import read_section
from pjepa.core.tables import read_classes, read_takes
from pjepa.features.config import ControlsConfig, FeaturesConfig
from pjepa.features.controls import history
from pjepa.features.encoded import random_encoder
from pjepa.live.outlook import (
    ABOUT,
    NEXT,
    PROGRESS,
    UNKNOWN,
    Ridge,
    clock_features,
    encoder_id,
    fit_progress,
)
from pjepa.metrics.bootstrap import PERCENTILES, Interval, group_weights
from pjepa.model.encoder import ProcedureEncoder
from pjepa.probes.base.scoring import LabelledTake, Labels, Roles, take_roles
from pjepa.probes.linear.config import LinearConfig
from pjepa.probes.linear.probe import LinearProbe, fit_converged
from pjepa.storage.writing import atomic_folder, write_json
from pjepa.streams.stream import StreamReader, Take, read_labels
from pjepa.takes.demo.world import NAMES, Chain, build_chain
from pjepa.tools import paths
from pjepa.ui.console import Meter

# Takes that end early: what a representation knows at 25, 50, 75 and 100 % of every segment.

SHARES = (0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Cuts:
    """Where one take is cut: N = segments x len(SHARES) places, in order."""

    segment: np.ndarray  # [N] place of the segment in the take
    share: np.ndarray  # [N] of it that was seen
    start: np.ndarray  # [N] first token of the segment
    end: np.ndarray  # [N] first token that was not seen

    def __len__(self) -> int:
        return len(self.end)


AtCuts = Callable[[Take, Cuts], np.ndarray]  # features [N, D] at the cuts


def take_cuts(segment: np.ndarray) -> Cuts:
    """Return the cuts of a take with segments c(i) [T]; a cut segment has one token at least."""
    starts, lengths = runs(attention_segments(segment))
    count, shares = len(starts), np.array(SHARES)
    seen = np.ceil(shares[None] * lengths[:, None] - 1e-9).astype(np.int64)  # [S, shares]
    start = np.repeat(starts, len(shares))
    return Cuts(
        np.repeat(np.arange(count), len(shares)),
        np.tile(shares, count),
        start,
        start + seen.ravel(),
    )


def raw(take: Take, cuts: Cuts) -> np.ndarray:
    """Return the last token before every cut [N, D]."""
    return take.features[cuts.end - 1]


def segment_mean(take: Take, cuts: Cuts) -> np.ndarray:
    """Return the mean of the segment so far [N, D]."""
    sums = np.cumsum(take.features, axis=0, dtype=np.float64)
    sums = np.concatenate([np.zeros_like(sums[:1]), sums])
    count = (cuts.end - cuts.start)[:, None]
    return ((sums[cuts.end] - sums[cuts.start]) / count).astype(np.float32)


def past(take: Take, cuts: Cuts) -> np.ndarray:
    """Return the control `history` of the cut take [N, 4 D].

    What it says of earlier segments is the same in the whole take.
    """
    whole = history(take, ControlsConfig(), 0.0)[cuts.start]
    return np.concatenate([segment_mean(take, cuts), whole[:, take.features.shape[1] :]], axis=1)


def encoded_cuts(encoder: ProcedureEncoder, take: Take, cuts: Cuts) -> tuple[np.ndarray, ...]:
    """Return the encoder's features at the cuts: last token [N, d], mean of the segment [N, d]."""
    stream = encoder.stream()
    annotated = stream.rule.kind == "annotated"
    final, last, mean, done = encoder.mean.new_zeros(0, encoder.config.width), [], [], 0
    for start, end, share in zip(cuts.start, cuts.end, cuts.share, strict=True):
        if end > done:  # two cuts of a short segment may be one
            told = stream.push(take.features[done:end], ends=False if annotated else None)
            final, done = torch.cat([final, told]), int(end)
        own = torch.cat([final, stream.peek()])[start:end]  # [n, d]
        last.append(own[-1])
        mean.append(own.mean(dim=0))
        if annotated and share == 1:
            final = torch.cat([final, stream.end_segment()])
    return tuple(torch.stack(rows).float().cpu().numpy() for rows in (last, mean))


CONTROLS: dict[str, AtCuts] = {"raw": raw, "segment_mean": segment_mean, "history": past}


# Ratios over takes with paired intervals over groups: percent right, or a mean error.


@dataclass(frozen=True)
class Tally:
    """One answer's sum and count on every take, in the order of the reported takes."""

    total: np.ndarray  # [takes]
    count: np.ndarray  # [takes]

    def under(self, weights: np.ndarray) -> np.ndarray:
        """Return 100 x sum / count for every row of weights [R, takes]."""
        ratio: np.ndarray = 100 * (weights @ self.total) / np.maximum(weights @ self.count, 1)
        return ratio


def pooled(parts: Sequence[Tally]) -> Tally:
    """Return all parts together."""
    return Tally(np.sum([p.total for p in parts], 0), np.sum([p.count for p in parts], 0))


def table(
    found: Mapping[str, Tally], against: Sequence[str], groups: Sequence[str], resamples: int
) -> dict[str, dict[str, Interval]]:
    """Return every row's value and its differences from the rows `against`, with intervals."""
    weights = group_weights(groups, resamples, 0)
    values = {name: tally.under(weights) for name, tally in found.items()}
    return {
        name: {"value": _interval(value, groups)}
        | {f"- {rest}": _interval(value - values[rest], groups) for rest in against if rest != name}
        for name, value in values.items()
    }


def _interval(values: np.ndarray, groups: Sequence[str]) -> Interval:
    low, high = np.percentile(values[1:], PERCENTILES)
    return Interval(float(values[0]), float(low), float(high), len(set(groups)))


# What comes next, and how far along is it? Asked of every representation at every cut.

ByTake = dict[str, np.ndarray]  # by take [N, D]


@dataclass(frozen=True)
class Asked:
    """Takes that are cut, their features by representation, and the answers."""

    cuts: dict[str, Cuts]
    features: dict[str, ByTake]  # by representation
    clock: ByTake  # powers of elapsed seconds [N, 3]
    next: dict[str, np.ndarray]  # label of the next step [N], -1: not asked
    progress: dict[str, np.ndarray]  # relative time of the cut [N]


def asked(
    stream: StreamReader,
    labels: Labels,
    background: int | None,
    takes: Sequence[str],
    encoders: Mapping[str, ProcedureEncoder],
) -> Asked:
    """Cut these takes and represent them; encoders by name, `NAME_segment` is added to `pjepa`."""
    found = Asked({}, {}, {}, {}, {})
    with Meter("questions: cut takes", len(takes), "take") as meter:
        for take in stream.read_many(takes):
            name, cuts = take.take_id, take_cuts(take.segment)
            rows = {control: make(take, cuts) for control, make in CONTROLS.items()}
            for encoder, model in encoders.items():
                rows[encoder], mean = encoded_cuts(model, take, cuts)
                if encoder == "pjepa":
                    rows["pjepa_segment"] = mean
            for representation, row in rows.items():
                found.features.setdefault(representation, {})[name] = row
            found.cuts[name] = cuts
            found.clock[name] = clock_features(cuts.end / stream.info.fps)
            found.next[name] = next_steps(labels[name], cuts, background)
            found.progress[name] = cuts.end / len(take.times)
            meter.advance(1)
    return found


def next_answers(
    world: Asked, roles: Roles, classes: int, config: LinearConfig
) -> dict[str, tuple[LinearProbe, ByTake]]:
    """Return the probe of every representation, and its guesses [N] on the reported takes."""
    found = {}
    for name, features in world.features.items():
        fit, holdout = (
            [LabelledTake(features[take], world.next[take]) for take in takes]
            for takes in (roles.fit, roles.holdout)
        )
        probe = fit_converged(fit, holdout, classes, config)
        guesses = {t: probe.logits(features[t]).argmax(1).cpu().numpy() for t in roles.reported}
        found[name] = probe, guesses
    return found


def next_tallies(
    world: Asked, takes: Sequence[str], guesses: Mapping[str, ByTake]
) -> dict[float, dict[str, Tally]]:
    """Return, for every share of a segment, how often each guess is right on each take."""
    return {
        share: {name: _right(world, takes, guess, share) for name, guess in guesses.items()}
        for share in SHARES
    }


def _right(world: Asked, takes: Sequence[str], guess: ByTake, share: float) -> Tally:
    right, count = np.zeros(len(takes)), np.zeros(len(takes))
    for place, take in enumerate(takes):
        here = (world.next[take] != UNKNOWN) & (world.cuts[take].share == share)
        right[place] = (guess[take][here] == world.next[take][here]).sum()
        count[place] = here.sum()
    return Tally(right, count)


def progress_answers(world: Asked, roles: Roles) -> tuple[dict[str, Ridge], dict[str, ByTake]]:
    """Return every row's regression, and its relative times [N] on the reported takes.

    Every representation is given the clock beside its features: an assistant has one.
    """
    rows = {"clock": world.clock} | {
        name: {t: np.concatenate([world.clock[t], features[t]], axis=1) for t in world.cuts}
        for name, features in world.features.items()
    }
    middle = float(np.median(np.concatenate([world.progress[take] for take in roles.fit])))
    guesses = {"constant": {t: np.full(len(world.cuts[t]), middle) for t in roles.reported}}
    ridges = {}
    for name, x in rows.items():
        ridge = fit_progress(x, world.progress, roles.fit, roles.holdout)
        ridges[name] = ridge
        guesses[name] = {take: ridge.predict(x[take]) for take in roles.reported}
    return ridges, guesses


def progress_tally(world: Asked, takes: Sequence[str], guess: ByTake) -> Tally:
    """Return the summed error of relative time on each take."""
    rows = [np.abs(guess[take] - world.progress[take]) for take in takes]
    return Tally(np.array([row.sum() for row in rows]), np.array([len(row) for row in rows], float))


# The demo's ceiling: the next step by the exact Bayes filter over its grammar.


def bayes_next(chain: Chain, states: np.ndarray) -> np.ndarray:
    """Return the likeliest next step after every segment [S], given all true primitives so far.

    States [S] are -1 while idle, which tells the filter nothing.
    """
    belief, moved = chain.start.copy(), False
    told = np.full(len(states), -1)
    for place, state in enumerate(states):
        if state >= 0:
            belief = belief @ chain.transition if moved else belief
            belief, moved = belief * (chain.primitive == chain.primitive[state]), True
            belief /= belief.sum()
        ahead = belief @ chain.transition if moved else belief
        told[place] = np.bincount(chain.label, weights=ahead, minlength=len(NAMES)).argmax()
    return told


RESAMPLES = 2000
AGAINST = {"next": ("raw", "history"), "progress": ("clock", "history")}
Scored = dict[str, dict[str, Interval]]  # by row: `value`, and `- CONTROL`


@dataclass(frozen=True)
class Answers:
    """The tables; `next` at every share of a segment, and all together."""

    next: dict[str, Scored]
    progress: Scored
    split: str

    def values(self) -> dict[str, Any]:
        """Return every number as JSON values."""
        parts = {f"next at {share}": rows for share, rows in self.next.items()}
        return {
            what: {row: {k: vars(v) for k, v in cells.items()} for row, cells in rows.items()}
            for what, rows in {**parts, "progress": self.progress}.items()
        }


def answer_questions() -> Answers:
    """Cut the takes, fit the answers and score them; write the tables and the fitted heads."""
    features = read_section(FeaturesConfig, "features")
    torch.set_num_threads(features.threads)
    encoder = ProcedureEncoder.from_pretrained(paths.ENCODER, features.device)
    untrained = random_encoder(encoder.config, encoder, features.random_seed)
    labels, classes = read_labels(paths.LABELS), read_classes(paths.CLASSES)
    roles = take_roles(read_takes(paths.TAKES_TABLE), labels)
    world = asked(
        StreamReader(paths.STREAM),
        labels,
        classes.background,
        (*roles.fit, *roles.holdout, *roles.reported),
        {"pjepa": encoder, "random": untrained},
    )
    config = read_section(LinearConfig, "probe.linear")
    steps = next_answers(world, roles, len(classes.names), config)
    guesses = {name: guess for name, (_, guess) in steps.items()} | _ceiling(world, roles)
    ridges, times = progress_answers(world, roles)
    found = _scored(world, roles, guesses, times)
    with atomic_folder(paths.QUESTIONS) as folder:
        write_json(folder / "tables.json", found.values())
        steps["pjepa"][0].save(folder / NEXT)
        ridges["pjepa"].save(folder / PROGRESS)
        write_json(folder / ABOUT, {"encoder": encoder_id(paths.ENCODER)})
    return found


def _ceiling(world: Asked, roles: Roles) -> dict[str, ByTake]:
    """Return the Bayes filter's guesses where the grammar is known: on the demo."""
    if not paths.DEMO_TRUTH.exists():
        return {}
    chain, truth = build_chain(), dict(list(pd.read_parquet(paths.DEMO_TRUTH).groupby("take_id")))
    found = {}
    for take in roles.reported:
        cuts = world.cuts[take]
        states = truth[take]["state"].to_numpy()[cuts.start[cuts.share == 1]]
        found[take] = bayes_next(chain, states)[cuts.segment]
    return {"bayes": found}


def _scored(
    world: Asked, roles: Roles, steps: Mapping[str, ByTake], times: Mapping[str, ByTake]
) -> Answers:
    groups = [roles.groups[take] for take in roles.reported]
    tallies = next_tallies(world, roles.reported, steps)
    at = {f"{share:.0%}": rows for share, rows in tallies.items()}
    at["all"] = {name: pooled([rows[name] for rows in tallies.values()]) for name in steps}
    errors = {name: progress_tally(world, roles.reported, guess) for name, guess in times.items()}
    return Answers(
        {share: table(rows, AGAINST["next"], groups, RESAMPLES) for share, rows in at.items()},
        table(errors, AGAINST["progress"], groups, RESAMPLES),
        roles.split,
    )


def next_lines(found: Answers) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table for people: right at each share, gains over all."""
    header = ["", *found.next, *(f"all - {name}" for name in AGAINST["next"])]
    rows = [
        [name, *(f"{part[name]['value'].mean:.1f}" for part in found.next.values())]
        + [span(cells.get(f"- {rest}")) for rest in AGAINST["next"]]
        for name, cells in found.next["all"].items()
    ]
    return header, rows


def progress_lines(found: Answers) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table for people."""
    header = ["", "error", *(f"- {name}" for name in AGAINST["progress"])]
    rows = [
        [name, f"{cells['value'].mean:.1f}"]
        + [span(cells.get(f"- {rest}")) for rest in AGAINST["progress"]]
        for name, cells in found.progress.items()
    ]
    return header, rows


def span(found: Interval | None) -> str:
    """Return a difference such as `+3.1 [1.0, 5.2]`; nothing for a row against itself."""
    if found is None:
        return ""
    return f"{found.mean:+.1f}" + (f" [{found.low:.1f}, {found.high:.1f}]" if found.holds else "")


def next_steps(labels: np.ndarray, cuts: Cuts, background: int | None) -> np.ndarray:
    """Return the label of the next step at every cut [N]; labels [T] are the tokens'.

    Background is no step: it is not asked for, and nothing is asked during it.
    """
    own = labels[cuts.start]
    known = own[cuts.share == 1]  # [S] in order
    following = np.full(len(known), UNKNOWN)
    ahead = UNKNOWN
    for place in range(len(known) - 1, -1, -1):
        following[place] = ahead
        ahead = known[place] if known[place] != background else ahead
    asked = (own != background) & (own >= 0)
    return np.where(asked, following[cuts.segment], UNKNOWN)
