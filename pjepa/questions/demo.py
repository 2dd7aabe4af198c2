"""The demo's ceiling: the next step by the exact Bayes filter over its grammar."""

from __future__ import annotations

import numpy as np

from pjepa.takes.sources.demo.chain import Chain
from pjepa.takes.sources.demo.procedures import NAMES


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
