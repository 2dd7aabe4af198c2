"""The grammar as a Markov chain, so that takes are drawn and beliefs filtered by one definition.

A state is (procedure, step, mode). Modes make the swap of two neighbours Markov: `early` is a step
done one place too soon, `late` the one it overtook.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pjepa.takes.sources.demo.procedures import (
    NAMES,
    PRIMITIVES,
    PROCEDURES,
    REPEAT,
    SKIP,
    STEPS,
    SWAP,
    Procedure,
)

MODES = ("normal", "early", "late")


@dataclass(frozen=True)
class Chain:
    """States of all procedures; procedures never mix inside a take."""

    procedure: np.ndarray  # [S] which procedure a state belongs to
    label: np.ndarray  # [S] meaning of the step
    primitive: np.ndarray  # [S] how it looks
    transition: np.ndarray  # [S, S] rows sum to 1
    start: np.ndarray  # [S] a take starts anywhere, in normal mode


def _successors(procedure: Procedure, step: int, mode: str) -> list[tuple[int, str, float]]:
    """Return (next step, next mode, probability) triples.

    Procedures wrap around to the next unit on the bench.
    """
    count = len(procedure.steps)
    if mode == "early":  # the overtaken step follows
        return [((step - 1) % count, "late", 1.0)]
    ahead = 2 if mode == "late" else 1  # the early one is done already
    moves = [
        (step + ahead, "normal", 1.0 - SKIP - SWAP),
        (step + ahead + 1, "normal", SKIP),
        (step + ahead + 1, "early", SWAP),
    ]
    first, last = procedure.loop
    if step == last and mode == "normal":
        moves = [(s, m, p * (1.0 - REPEAT)) for s, m, p in moves]
        moves.append((first, "normal", REPEAT))
    return [(s % count, m, p) for s, m, p in moves]


def build_chain() -> Chain:
    """Return the chain over all procedures."""
    keys = [
        (number, step, mode)
        for number, procedure in enumerate(PROCEDURES)
        for mode in MODES
        for step in range(len(procedure.steps))
    ]
    index = {key: place for place, key in enumerate(keys)}
    transition = np.zeros((len(keys), len(keys)))
    for number, step, mode in keys:
        row = index[number, step, mode]
        for following, following_mode, probability in _successors(PROCEDURES[number], step, mode):
            transition[row, index[number, following, following_mode]] += probability
    names = [PROCEDURES[number].steps[step] for number, step, _ in keys]
    normal = np.array([mode == "normal" for _, _, mode in keys], float)
    size = np.array([len(PROCEDURES[number].steps) for number, _, _ in keys])
    return Chain(
        procedure=np.array([number for number, _, _ in keys]),
        label=np.array([NAMES.index(name) for name in names]),
        primitive=np.array([PRIMITIVES.index(STEPS[name]) for name in names]),
        transition=transition,
        start=normal / size / len(PROCEDURES),
    )
