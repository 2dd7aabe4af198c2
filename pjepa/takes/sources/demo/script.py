"""Scripts of takes: segments and their times, drawn from the chain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from pjepa.takes.sources.demo.chain import Chain
from pjepa.takes.sources.demo.procedures import (
    BACKGROUND,
    IDLE,
    PAUSE,
    PRIMITIVES,
    PROCEDURES,
    SECONDS,
)


@dataclass(frozen=True)
class Event:
    """One segment of a take. `state` is the chain's state, -1 while idle."""

    start_s: float
    end_s: float
    primitive: int
    label: int
    state: int


@dataclass(frozen=True)
class Script:
    """A whole take: its procedure and its segments, end to end."""

    take_id: str
    procedure: str
    events: tuple[Event, ...]

    @property
    def duration_s(self) -> float:
        return self.events[-1].end_s


def _seconds(primitive: int, rng: np.random.Generator) -> float:
    low, high = SECONDS[PRIMITIVES[primitive]]
    return round(float(rng.uniform(low, high)) * 4) / 4  # quarter seconds: one token at 4 fps


def _walk(chain: Chain, number: int, rng: np.random.Generator) -> Iterator[int]:
    """Yield states of an endless walk through one procedure, with idle runs (-1) in between."""
    start = np.where(chain.procedure == number, chain.start, 0.0)
    state = int(rng.choice(len(start), p=start / start.sum()))
    while True:
        if rng.random() < PAUSE:
            yield -1
        yield state
        state = int(rng.choice(len(start), p=chain.transition[state]))


def _timed_walk(
    chain: Chain, number: int, seconds: float, rng: np.random.Generator
) -> list[tuple[int, float]]:
    """Return (state, seconds) pairs until at least `seconds` have passed."""
    walk: list[tuple[int, float]] = []
    states = _walk(chain, number, rng)
    while sum(length for _, length in walk) < seconds:
        state = next(states)
        walk.append((state, _seconds(_primitive(chain, state), rng)))
    return walk


def _primitive(chain: Chain, state: int) -> int:
    return PRIMITIVES.index(IDLE) if state < 0 else int(chain.primitive[state])


def write_script(
    chain: Chain, take_id: str, number: int, seconds: float, seed: list[int], shuffled: bool
) -> Script:
    """Return one take of procedure `number`; shuffled, the same segments come in random order."""
    walk = _timed_walk(chain, number, seconds, np.random.default_rng([*seed, 0]))
    if shuffled:
        order = np.random.default_rng([*seed, 1]).permutation(len(walk))
        walk = [walk[place] for place in order]
    events: list[Event] = []
    clock = 0.0
    for state, length in walk:
        label = BACKGROUND if state < 0 else int(chain.label[state])
        events.append(Event(clock, clock + length, _primitive(chain, state), label, state))
        clock += length
    return Script(take_id, PROCEDURES[number].name, tuple(events))
