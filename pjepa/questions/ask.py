"""What comes next, and how far along is it? Asked of every representation at every cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pjepa.encoder.encoder import ProcedureEncoder
from pjepa.probes.base.roles import Labels, Roles
from pjepa.probes.linear.config import LinearConfig
from pjepa.probes.linear.probe import LinearProbe
from pjepa.questions.answers import UNKNOWN, Ridge, fit_next, fit_progress, next_steps
from pjepa.questions.cuts import CONTROLS, SHARES, Cuts, encoded_cuts, take_cuts
from pjepa.questions.scores import Tally
from pjepa.streams.store import StreamReader
from pjepa.ui.progress import Meter

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


def clock_features(seconds: np.ndarray) -> np.ndarray:
    """Return elapsed minutes, squared and cubed [N, 3]."""
    minutes = np.asarray(seconds) / 60
    return np.stack([minutes, minutes**2, minutes**3], axis=1)


def next_answers(
    world: Asked, roles: Roles, classes: int, config: LinearConfig
) -> dict[str, tuple[LinearProbe, ByTake]]:
    """Return the probe of every representation, and its guesses [N] on the reported takes."""
    found = {}
    for name, features in world.features.items():
        probe = fit_next(features, world.next, roles.fit, roles.holdout, classes, config)
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
