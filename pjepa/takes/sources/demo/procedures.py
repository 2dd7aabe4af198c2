"""The grammar of the demo world: six service procedures at one bench.

Every step is *done* by one primitive (what a camera can see) and *means* one thing (its label).
Each primitive serves three meanings, and the fixture hides its inside, so a single frame never
distinguishes `open valve` from `close valve`: only what happened before does.

This file is the falsifiable part of the demo. It was committed before the first pretraining run
and is not tuned to any result; change `data.seed`, not the grammar.
"""

from __future__ import annotations

from dataclasses import dataclass

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
