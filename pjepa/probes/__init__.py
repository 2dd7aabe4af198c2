"""Probes: supervised models on frozen representations, one folder each (paper Sec. 3.3)."""

from functools import cache
from pathlib import Path


@cache
def probe_names() -> tuple[str, ...]:
    """Return the probes there are: the folders here that hold a `kind.py`."""
    return tuple(sorted(kind.parent.name for kind in Path(__file__).parent.glob("*/kind.py")))
