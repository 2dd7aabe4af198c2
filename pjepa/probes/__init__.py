"""Probes: supervised models on frozen representations, one folder each (paper Sec. 3.3)."""

from functools import cache
from pathlib import Path


@cache
def probe_names() -> tuple[str, ...]:
    """Return the probes there are: the folders here that hold a `probe.py`."""
    return tuple(sorted(file.parent.name for file in Path(__file__).parent.glob("*/probe.py")))
