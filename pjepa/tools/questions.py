"""`pjepa questions`: what comes next, and how far along is it, on the outputs of the pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

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
from pjepa.metrics.bootstrap import Interval, group_weights, resampled_interval
from pjepa.model.encoder import ProcedureEncoder
from pjepa.probes.base.scoring import LabelledTake, Labels, Roles, take_roles
from pjepa.probes.linear.config import LinearConfig
from pjepa.probes.linear.probe import LinearProbe, fit_converged
from pjepa.report.tables import rounded, with_span
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


def take_cuts(segment: np.ndarray) -> Cuts:
    """Return the cuts of a take with segments c(i) [T]; a cut segment has one token at least."""
    starts, lengths = runs(attention_segments(segment))
    place, share = np.repeat(np.arange(len(starts)), len(SHARES)), np.tile(SHARES, len(starts))
    seen = np.ceil(share * lengths[place] - 1e-9).astype(np.int64)
    return Cuts(place, share, starts[place], starts[place] + seen)


def raw(take: Take, cuts: Cuts) -> np.ndarray:
    """Return the last token before every cut [N, D]."""
    return take.features[cuts.end - 1]


def segment_mean(take: Take, cuts: Cuts) -> np.ndarray:
    """Return the mean of the segment so far [N, D]."""
    segments = [take.features[s:e] for s, e in zip(cuts.start, cuts.end, strict=True)]
    return np.stack([rows.mean(axis=0, dtype=np.float64) for rows in segments]).astype(np.float32)


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
            ready = stream.push(take.features[done:end], ends=False if annotated else None)
            final, done = torch.cat([final, ready]), int(end)
        own = torch.cat([final, stream.peek()])[start:end]  # [n, d]
        last.append(own[-1])
        mean.append(own.mean(dim=0))
        if annotated and share == 1:
            final = torch.cat([final, stream.end_segment()])
    return tuple(torch.stack(rows).float().cpu().numpy() for rows in (last, mean))


CONTROLS = {"raw": raw, "segment_mean": segment_mean, "history": past}


# What comes next, and how far along is it? Asked of every representation at every cut.


@dataclass(frozen=True)
class Questions:
    """Every cut of some takes [N], its features by representation, and the answers."""

    cuts: pd.DataFrame  # take, those of `Cuts`, next: label of the next step, progress: 0 to 1
    features: Mapping[str, np.ndarray]  # [N, D]
    clock: np.ndarray  # powers of elapsed seconds [N, 3]

    def of(self, takes: Sequence[str]) -> np.ndarray:
        """Return whether each cut [N] is one of these takes'."""
        return self.cuts["take"].isin(takes).to_numpy()


def build_questions(
    stream: StreamReader,
    labels: Labels,
    background: int | None,
    takes: Sequence[str],
    encoders: Mapping[str, ProcedureEncoder],
) -> Questions:
    """Cut these takes and represent them; encoders by name, `NAME_segment` is added to `pjepa`."""
    tables: list[pd.DataFrame] = []
    features: dict[str, list[np.ndarray]] = {}
    with Meter("questions: cut takes", len(takes), "take") as meter:
        for take in stream.read_many(takes):
            cuts = take_cuts(take.segment)
            rows = {control: make(take, cuts) for control, make in CONTROLS.items()}
            for encoder, model in encoders.items():
                rows[encoder], mean = encoded_cuts(model, take, cuts)
                if encoder == "pjepa":
                    rows["pjepa_segment"] = mean
            for representation, row in rows.items():
                features.setdefault(representation, []).append(row)
            following = next_steps(labels[take.take_id], cuts, background)
            answers = {"next": following, "progress": cuts.end / len(take.times)}
            tables.append(pd.DataFrame({"take": take.take_id, **vars(cuts), **answers}))
            meter.advance(1)
    table = pd.concat(tables, ignore_index=True)
    clock = clock_features(table["end"].to_numpy() / stream.info.fps)
    return Questions(table, {name: np.concatenate(rows) for name, rows in features.items()}, clock)


def next_steps(labels: np.ndarray, cuts: Cuts, background: int | None) -> np.ndarray:
    """Return the label of the next step at every cut [N]; labels [T] are the tokens'.

    Background is no step: it is not asked for, and nothing is asked during it.
    """
    own = labels[cuts.start]
    following, ahead = [], UNKNOWN
    for label in own[cuts.share == 1][::-1].tolist():  # of every segment, the last first
        following.append(ahead)
        ahead = label if label != background else ahead
    is_step = (own != background) & (own >= 0)
    return np.where(is_step, np.array(following[::-1])[cuts.segment], UNKNOWN)


def next_answers(
    questions: Questions, roles: Roles, classes: int, config: LinearConfig
) -> dict[str, tuple[LinearProbe, np.ndarray]]:
    """Return the probe of every representation, and its guesses at the reported cuts."""
    answers, labels = {}, questions.cuts["next"].to_numpy()
    for name, features in questions.features.items():
        fit, holdout = (
            [LabelledTake(features[rows], labels[rows])]
            for rows in (questions.of(roles.fit), questions.of(roles.holdout))
        )
        probe = fit_converged(fit, holdout, classes, config)
        logits = probe.logits(features[questions.of(roles.reported)])
        answers[name] = probe, logits.argmax(1).cpu().numpy()
    return answers


def progress_answers(
    questions: Questions, roles: Roles
) -> tuple[dict[str, Ridge], dict[str, np.ndarray]]:
    """Return every row's regression, and its relative times at the reported cuts.

    Every representation is given the clock beside its features: an assistant has one.
    """
    progress, clock = questions.cuts["progress"].to_numpy(), questions.clock
    fit, reported = questions.of(roles.fit), questions.of(roles.reported)
    holdout = questions.of(roles.holdout or roles.fit)
    guesses = {"constant": np.full(reported.sum(), np.median(progress[fit]))}
    ridges = {}
    for name, features in {"clock": clock[:, :0], **questions.features}.items():
        x = np.concatenate([clock, features], axis=1)
        ridges[name] = fit_progress(x[fit], progress[fit], x[holdout], progress[holdout])
        guesses[name] = ridges[name].predict(x[reported])
    return ridges, guesses


# The demo's ceiling: the next step by the exact Bayes filter over its grammar.


def beliefs(chain: Chain, states: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, for every segment, the odds of its state given the true primitives before it, and
    the odds of the next state given its own as well.

    States [S] are -1 while idle, which tells the filter nothing.
    """
    after = chain.start
    for state in states:
        before = after
        if state >= 0:
            belief = before * (chain.primitive == chain.primitive[state])
            after = belief / belief.sum() @ chain.transition
        yield before, after


def bayes_next(chain: Chain, states: np.ndarray) -> np.ndarray:
    """Return the likeliest next step after every segment [S], given all true primitives so far."""
    odds = [np.bincount(chain.label, after, len(NAMES)) for _, after in beliefs(chain, states)]
    return np.array([steps.argmax() for steps in odds])


# Percent right, or a mean error, with paired intervals over groups of takes.

RESAMPLES = 2000
AGAINST = {"next": ("raw", "history"), "progress": ("clock", "history")}
Scored = dict[str, dict[str, Interval]]  # by row: `value`, and `- CONTROL`


def score_answers(
    questions: Questions,
    roles: Roles,
    steps: Mapping[str, np.ndarray],
    times: Mapping[str, np.ndarray],
) -> dict[str, Scored]:
    """Return the tables of guessed next steps, at every share and at all, and of progress."""
    cuts = questions.cuts[questions.of(roles.reported)]
    groups, labels = cuts["take"].map(roles.groups).to_numpy(), cuts["next"].to_numpy()
    progress, is_asked = cuts["progress"].to_numpy(), labels != UNKNOWN
    right = {name: guess == labels for name, guess in steps.items()}
    errors = {name: np.abs(guess - progress) for name, guess in times.items()}
    rows = {f"{share:.0%}": is_asked & (cuts["share"] == share).to_numpy() for share in SHARES}
    rows["all"] = is_asked
    tables = {
        f"next at {share}": _table(right, groups, mine, AGAINST["next"])
        for share, mine in rows.items()
    }
    everywhere = np.ones(len(groups), bool)
    return tables | {"progress": _table(errors, groups, everywhere, AGAINST["progress"])}


def _table(
    values: Mapping[str, np.ndarray], groups: np.ndarray, rows: np.ndarray, against: Sequence[str]
) -> Scored:
    """Return the mean over cuts in percent, and differences from the rows named `against`."""
    names, group = np.unique(groups, return_inverse=True)
    weights = group_weights(names.tolist(), RESAMPLES, 0)
    counts = np.maximum(weights @ np.bincount(group[rows], minlength=len(names)), 1)
    means = {
        name: 100 * (weights @ np.bincount(group[rows], mine[rows], len(names))) / counts
        for name, mine in values.items()
    }
    return {
        name: {"value": resampled_interval(mean, len(names))}
        | {f"- {o}": resampled_interval(mean - means[o], len(names)) for o in against if o != name}
        for name, mean in means.items()
    }


# The command.


def answer_questions() -> tuple[dict[str, Scored], str]:
    """Cut the takes, fit and score the answers, and write them; return tables and split."""
    features = read_section(FeaturesConfig, "features")
    torch.set_num_threads(features.threads)
    encoder = ProcedureEncoder.from_pretrained(paths.ENCODER, features.device)
    untrained = random_encoder(encoder.config, encoder, features.random_seed)
    labels, classes = read_labels(paths.LABELS), read_classes(paths.CLASSES)
    roles = take_roles(read_takes(paths.TAKES_TABLE), labels)
    questions = build_questions(
        StreamReader(paths.STREAM),
        labels,
        classes.background,
        (*roles.fit, *roles.holdout, *roles.reported),
        {"pjepa": encoder, "random": untrained},
    )
    config = read_section(LinearConfig, "probe.linear")
    steps = next_answers(questions, roles, len(classes.names), config)
    guesses = {name: guess for name, (_, guess) in steps.items()} | _ceiling(questions, roles)
    ridges, times = progress_answers(questions, roles)
    tables = score_answers(questions, roles, guesses, times)
    with atomic_folder(paths.QUESTIONS) as folder:
        write_json(folder / "tables.json", rounded(tables))
        steps["pjepa"][0].save(folder / NEXT)
        ridges["pjepa"].save(folder / PROGRESS)
        write_json(folder / ABOUT, {"encoder": encoder_id(paths.ENCODER)})
    return tables, roles.split


def _ceiling(questions: Questions, roles: Roles) -> dict[str, np.ndarray]:
    """Return the Bayes filter's guesses where the grammar is known: on the demo."""
    if not paths.DEMO_TRUTH.exists():
        return {}
    chain, truth = build_chain(), dict(list(pd.read_parquet(paths.DEMO_TRUTH).groupby("take_id")))
    guesses = []
    for take, cuts in questions.cuts[questions.of(roles.reported)].groupby("take", sort=False):
        states = truth[take]["state"].to_numpy()[cuts["start"][cuts["share"] == 1]]
        guesses.append(bayes_next(chain, states)[cuts["segment"]])
    return {"bayes": np.concatenate(guesses)}


def table_lines(
    columns: Mapping[str, Scored], against: Sequence[str], change: str = "- {}"
) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: the values of every table, and how the last one's differ."""
    *_, last = columns.values()
    rows = []
    for name, cells in last.items():
        values = [f"{table[name]['value'].mean:.1f}" for table in columns.values()]
        changes = [with_span(cells[f"- {o}"]) if f"- {o}" in cells else "" for o in against]
        rows.append([name, *values, *changes])
    return ["", *columns, *(change.format(name) for name in against)], rows
