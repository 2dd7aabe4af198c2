"""Upper bounds on accuracy for demo takes: two computed ceilings.

*Appearance*: the best guess of a step from its true primitive alone. *History*: the exact Bayes
filter over the grammar, given the true primitives up to and including the current segment
(what clip-causal attention may see, Eq. 3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pjepa.takes.sources.demo.chain import Chain
from pjepa.takes.sources.demo.procedures import BACKGROUND, NAMES, PRIMITIVES
from pjepa.takes.sources.demo.script import Event, Script

Guess = Callable[[Script], list[int]]


def appearance_guesses(scripts: Sequence[Script]) -> Guess:
    """Return a guess by look alone: each primitive's most frequent meaning, by time."""
    seconds = np.zeros((len(PRIMITIVES), len(NAMES)))
    for event in (event for script in scripts for event in script.events):
        seconds[event.primitive, event.label] += event.end_s - event.start_s
    best = seconds.argmax(axis=1)
    return lambda script: [int(best[event.primitive]) for event in script.events]


def ordered_guesses(chain: Chain) -> Guess:
    """Return the forward filter: beliefs over states, moved by the grammar, cut by what is seen."""

    def guess(script: Script) -> list[int]:
        belief, moved = chain.start.copy(), False
        answers = []
        for event in script.events:
            if event.state < 0:
                answers.append(BACKGROUND)
                continue
            belief = belief @ chain.transition if moved else belief
            belief, moved = belief * (chain.primitive == event.primitive), True
            belief /= belief.sum()
            answers.append(_likeliest_label(chain, belief))
        return answers

    return guess


def shuffled_guesses(chain: Chain) -> Guess:
    """Return a naive Bayes filter over procedures: without order, nothing more can be inferred."""
    share = _state_shares(chain)  # [procedures, states]
    by_primitive = np.stack(
        [share[:, chain.primitive == p].sum(axis=1) for p in range(len(PRIMITIVES))]
    )

    def guess(script: Script) -> list[int]:
        belief = np.full(len(share), 1.0 / len(share))
        answers = []
        for event in script.events:
            if event.state < 0:
                answers.append(BACKGROUND)
                continue
            belief = belief * by_primitive[event.primitive]
            belief /= belief.sum()
            states = (belief @ share) * (chain.primitive == event.primitive)
            answers.append(_likeliest_label(chain, states))
        return answers

    return guess


def _state_shares(chain: Chain) -> np.ndarray:
    """Return how often each procedure visits each state in the long run, [procedures, states]."""
    rows = []
    for number in range(int(chain.procedure.max()) + 1):
        visit = np.where(chain.procedure == number, chain.start, 0.0)
        visit = visit / visit.sum()
        for _ in range(2000):  # lazy steps, so that cycles settle
            visit = 0.5 * visit + 0.5 * visit @ chain.transition
        rows.append(visit)
    return np.stack(rows)


def _likeliest_label(chain: Chain, belief: np.ndarray) -> int:
    return int(np.bincount(chain.label, weights=belief, minlength=len(NAMES)).argmax())


def accuracy(scripts: Sequence[Script], guess: Guess) -> dict[str, float]:
    """Return the percentage of time guessed right: `acc` without background, `acc_bg` with it."""
    right = {True: 0.0, False: 0.0}
    total = {True: 0.0, False: 0.0}
    for script in scripts:
        for event, answer in zip(script.events, guess(script), strict=True):
            step = event.label != BACKGROUND
            right[step] += _seconds(event) * (answer == event.label)
            total[step] += _seconds(event)
    return {
        "acc": 100 * right[True] / max(total[True], 1e-9),
        "acc_bg": 100 * sum(right.values()) / max(sum(total.values()), 1e-9),
    }


def _seconds(event: Event) -> float:
    return event.end_s - event.start_s


def ceilings(scripts: Sequence[Script], chain: Chain, order: str) -> dict[str, dict[str, float]]:
    """Return both ceilings on the given takes."""
    history = ordered_guesses(chain) if order == "procedure" else shuffled_guesses(chain)
    return {
        "appearance": accuracy(scripts, appearance_guesses(scripts)),
        "history": accuracy(scripts, history),
    }
