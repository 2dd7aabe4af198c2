"""The grammar of the demo world: six service procedures at one bench.

Every step is *done* by one primitive (what a camera can see) and *means* one thing (its label).
Each primitive serves three meanings, and the fixture hides its inside, so a single frame never
distinguishes `open valve` from `close valve`: only what happened before does.

This file is the falsifiable part of the demo. It was committed before the first pretraining run
and is not tuned to any result; change `data.seed`, not the grammar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

import numpy as np

# Files of the demo, the one source whose data the pipeline makes itself.
DEMO = Path("data/demo")
DEMO_TRUTH = DEMO / "truth.parquet"
DEMO_CEILINGS = DEMO / "ceilings.json"
DEMO_VIDEOS = DEMO / "videos"

IDLE = "idle"
PRIMITIVES = (IDLE, "bin", "slot", "knob", "driver", "bottle", "button", "cloth", "gauge")

# Meaning of each step -> the primitive that performs it.
STEPS: dict[str, str] = {
    "background": IDLE,
    "take part": "bin",
    "return part": "bin",
    "sort scrap": "bin",
    "insert cartridge": "slot",
    "remove cartridge": "slot",
    "seat gasket": "slot",
    "open valve": "knob",
    "close valve": "knob",
    "set pressure": "knob",
    "fasten cover": "driver",
    "loosen cover": "driver",
    "adjust stop": "driver",
    "fill tank": "bottle",
    "rinse chamber": "bottle",
    "oil bearing": "bottle",
    "start pump": "button",
    "stop pump": "button",
    "reset alarm": "button",
    "dry chamber": "cloth",
    "polish lens": "cloth",
    "wipe spill": "cloth",
    "check level": "gauge",
    "check leak": "gauge",
    "check play": "gauge",
}
NAMES = tuple(STEPS)
BACKGROUND = 0


@dataclass(frozen=True)
class Procedure:
    """Ordered steps; `loop` (first, last) is a sub-procedure that may be repeated."""

    name: str
    steps: tuple[str, ...]
    loop: tuple[int, int]


# In each procedure every primitive is used for two different steps, so that knowing the procedure
# is not enough either: the place in it counts.
PROCEDURES = (
    Procedure(
        "replace cartridge",
        ("close valve", "loosen cover", "remove cartridge", "sort scrap", "rinse chamber",
         "dry chamber", "take part", "insert cartridge", "fasten cover", "open valve",
         "fill tank", "wipe spill"),
        (4, 5),
    ),
    Procedure(
        "fill and prime",
        ("take part", "open valve", "fill tank", "check level", "set pressure", "start pump",
         "check leak", "stop pump", "rinse chamber", "return part"),
        (2, 3),
    ),
    Procedure(
        "flush system",
        ("open valve", "start pump", "rinse chamber", "dry chamber", "stop pump", "check leak",
         "set pressure", "fill tank", "check level", "wipe spill"),
        (2, 3),
    ),
    Procedure(
        "change gasket",
        ("reset alarm", "loosen cover", "remove cartridge", "polish lens", "seat gasket",
         "fasten cover", "start pump", "check leak", "wipe spill", "check play"),
        (3, 4),
    ),
    Procedure(
        "align stop",
        ("check play", "adjust stop", "polish lens", "take part", "fasten cover", "oil bearing",
         "check level", "rinse chamber", "dry chamber", "return part"),
        (0, 1),
    ),
    Procedure(
        "shut down",
        ("stop pump", "close valve", "loosen cover", "remove cartridge", "sort scrap",
         "seat gasket", "adjust stop", "return part", "set pressure", "reset alarm"),
        (4, 7),
    ),
)  # fmt: skip

# How takes deviate from the written procedure.
SKIP = 0.06  # a step is left out
SWAP = 0.06  # two neighbouring steps change places
REPEAT = 0.35  # at its end, the loop is done once more
PAUSE = 0.2  # an idle run comes before a step

# Seconds a step takes depend on the primitive alone, so that duration says nothing more about it.
SECONDS: dict[str, tuple[float, float]] = {
    IDLE: (1.0, 3.0),
    "bin": (1.5, 3.5),
    "slot": (2.0, 4.5),
    "knob": (1.5, 3.0),
    "driver": (2.5, 5.0),
    "bottle": (2.5, 4.5),
    "button": (1.5, 2.5),
    "cloth": (2.0, 4.5),
    "gauge": (2.0, 4.0),
}


# The grammar as a Markov chain, so that takes are drawn and beliefs filtered by one definition.

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


# Scripts of takes: segments and their times, drawn from the chain.


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


def _walk(chain: Chain, number: int, rng: np.random.Generator) -> Iterator[int]:
    """Yield states of an endless walk through one procedure, with idle runs (-1) in between."""
    start = np.where(chain.procedure == number, chain.start, 0.0)
    state = int(rng.choice(len(start), p=start / start.sum()))
    while True:
        if rng.random() < PAUSE:
            yield -1
        yield state
        state = int(rng.choice(len(start), p=chain.transition[state]))


def write_script(
    chain: Chain, take_id: str, number: int, seconds: float, seed: list[int], shuffled: bool
) -> Script:
    """Return one take of procedure `number` that lasts at least `seconds`.

    Shuffled, the same segments come in random order.
    """
    rng = np.random.default_rng([*seed, 0])
    segments: list[Event] = []  # at times that count from each one's own start
    states = _walk(chain, number, rng)
    while sum(segment.end_s for segment in segments) < seconds:
        state = next(states)
        primitive = PRIMITIVES.index(IDLE) if state < 0 else int(chain.primitive[state])
        label = BACKGROUND if state < 0 else int(chain.label[state])
        length = float(rng.uniform(*SECONDS[PRIMITIVES[primitive]]))
        length = round(length * 4) / 4  # quarter seconds: one token at 4 fps
        segments.append(Event(0.0, length, primitive, label, state))
    if shuffled:
        order = np.random.default_rng([*seed, 1]).permutation(len(segments))
        segments = [segments[place] for place in order]
    ends = accumulate(segment.end_s for segment in segments)
    events = [
        replace(segment, start_s=end - segment.end_s, end_s=end)
        for segment, end in zip(segments, ends, strict=True)
    ]
    return Script(take_id, PROCEDURES[number].name, tuple(events))


# Upper bounds on accuracy for demo takes: two computed ceilings.

Guess = Callable[[Script], list[int]]


def appearance_guesses(scripts: Sequence[Script]) -> Guess:
    """Return a guess by look alone: each primitive's most frequent meaning, by time."""
    seconds = np.zeros((len(PRIMITIVES), len(NAMES)))
    for event in (event for script in scripts for event in script.events):
        seconds[event.primitive, event.label] += event.end_s - event.start_s
    best = seconds.argmax(axis=1)
    return lambda script: [int(best[event.primitive]) for event in script.events]


def filter_guesses(chain: Chain) -> Guess:
    """Return the forward filter: beliefs over states, moved by the grammar, cut by what is seen."""

    def guess(script: Script) -> list[int]:
        belief, moved = chain.start, False
        answers = []
        for event in script.events:
            if event.state < 0:
                answers.append(BACKGROUND)
                continue
            belief = belief @ chain.transition if moved else belief
            belief, moved = belief * (chain.primitive == event.primitive), True
            belief /= belief.sum()
            scores = np.bincount(chain.label, weights=belief, minlength=len(NAMES))
            answers.append(int(scores.argmax()))
        return answers

    return guess


def unordered(chain: Chain) -> Chain:
    """Return the chain of shuffled takes: the next state tells the procedure and nothing else."""
    rows = []
    for number in range(len(PROCEDURES)):  # how often each visits each state in the long run
        visit = np.where(chain.procedure == number, chain.start, 0.0)
        visit = visit / visit.sum()
        for _ in range(2000):  # lazy steps, so that cycles settle
            visit = 0.5 * visit + 0.5 * visit @ chain.transition
        rows.append(visit)
    share = np.stack(rows)  # [procedures, states]
    return replace(chain, transition=share[chain.procedure], start=share.mean(axis=0))


def accuracy(scripts: Sequence[Script], guess: Guess) -> dict[str, float]:
    """Return the percentage of time guessed right: `acc` without background, `acc_bg` with it."""
    right, total = {True: 0.0, False: 0.0}, {True: 0.0, False: 0.0}
    for script in scripts:
        for event, answer in zip(script.events, guess(script), strict=True):
            step, seconds = event.label != BACKGROUND, event.end_s - event.start_s
            right[step] += seconds * (answer == event.label)
            total[step] += seconds
    return {
        "acc": 100 * right[True] / max(total[True], 1e-9),
        "acc_bg": 100 * sum(right.values()) / max(sum(total.values()), 1e-9),
    }


def ceilings(scripts: Sequence[Script], chain: Chain, order: str) -> dict[str, dict[str, float]]:
    """Return both ceilings on the given takes."""
    history = filter_guesses(chain if order == "procedure" else unordered(chain))
    return {
        "appearance": accuracy(scripts, appearance_guesses(scripts)),
        "history": accuracy(scripts, history),
    }
