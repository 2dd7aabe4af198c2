"""What only the demo can show, because its truth is known: ceilings, gap closed, primitives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pjepa.core.files import read_object
from pjepa.metrics.bootstrap import Interval
from pjepa.report.numbers.results import Results
from pjepa.ui.errors import InputError

PROBE = "linear"
GAP_READERS = ("raw", "random", "history", "pjepa")
# Points that the demo promises on `procedure` order, as the median over five data seeds.
PRIMITIVE_NEEDED, GAP_NEEDED = 60.0, 50.0
GAINS_NEEDED = {
    ("pjepa", "raw"): 15.0,
    ("pjepa", "random"): 10.0,
    ("pjepa", "time"): 10.0,
    ("pjepa_segment", "segment_mean"): 0.0,
}


@dataclass(frozen=True)
class DemoNumbers:
    """Ceilings of `acc`, the share of the gap between them closed, primitives read; percent."""

    order: str
    appearance: float
    history: float
    gap_closed: Mapping[str, float]
    primitive: Mapping[str, float]


@dataclass(frozen=True)
class Claim:
    """One line of the proof: what was measured, what is promised (None: shown as it is)."""

    what: str
    value: float
    unit: str
    needed: float | None = None
    interval: Interval | None = None

    @property
    def holds(self) -> bool | None:
        """Return whether the promise is kept, with an interval that excludes 0.

        None if there is none.
        """
        if self.needed is None:
            return None
        sure = self.interval is None or self.interval.above_zero
        return self.value >= self.needed and sure


def demo_numbers(results: Results, ceilings: Path) -> DemoNumbers | None:
    """Return the demo's numbers, or None where there is no demo or no linear probe."""
    if not ceilings.exists() or PROBE not in results.probes:
        return None
    found = read_object(ceilings, "split", "order", "appearance", "history")
    split = results.of_probe(PROBE)[0].split
    if found["split"] != split:
        raise InputError(f"{ceilings}: computed on {found['split']}, but cells report {split}")
    low, high = float(found["appearance"]["acc"]), float(found["history"]["acc"])
    cells = {c.representation: c for c in results.of_probe(PROBE)}
    closed = {
        name: 100.0 * (cells[name].metrics["acc"] - low) / (high - low)
        for name in GAP_READERS
        if name in cells and high > low
    }
    return DemoNumbers(found["order"], low, high, closed, primitive_readings(results))


def primitive_readings(results: Results) -> dict[str, float]:
    """Return how well a linear probe reads the demo's true primitive, by representation."""
    cells = results.of_probe(PROBE) if PROBE in results.probes else []
    return {c.representation: c.readings["primitive"] for c in cells if "primitive" in c.readings}


def proof_claims(results: Results, demo: DemoNumbers) -> list[Claim]:
    """Return the lines of the proof; a shuffled world promises nothing, so it only shows values."""
    promised = demo.order == "procedure"
    claims = [
        Claim(f"true primitive read from {name}", value, "%", _primitive_promise(name, promised))
        for name, value in demo.primitive.items()
    ]
    for pair, needed in [*GAINS_NEEDED.items(), (("pjepa", "history"), None)]:
        difference = results.difference(PROBE, *pair)
        if difference is not None:
            gain = difference.intervals["acc"]
            promise = needed if promised else None
            claims.append(Claim(difference.name, gain.mean, "points", promise, gain))
    for name, value in demo.gap_closed.items():
        promise = GAP_NEEDED if promised and name == "pjepa" else None
        claims.append(Claim(f"gap between the ceilings closed by {name}", value, "%", promise))
    return claims


def _primitive_promise(name: str, promised: bool) -> float | None:
    return PRIMITIVE_NEEDED if promised and name == "raw" else None
