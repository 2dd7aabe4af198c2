"""What dvc.lock says of the results on disk: with which parameters they were made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pjepa.cells.config import CellsConfig
from pjepa.core.files import read_yaml
from pjepa.core.section import read_params, read_section
from pjepa.tools.paths import PARAMS
from pjepa.ui.errors import InputError

LOCK = Path("dvc.lock")
LOOKS = ("cells", "report")  # sections that choose what is shown, and change no number


def locked_stages() -> dict[str, Any]:
    """Return the stages of dvc.lock by name; none before the first run."""
    if not LOCK.is_file():
        return {}
    locked = read_yaml(LOCK)
    if not isinstance(locked, dict):
        raise InputError(f"{LOCK}: no lock file of DVC; take it from Git (`git checkout {LOCK}`)")
    return locked.get("stages") or {}


def changed_since_run() -> list[str]:
    """Return `place value (was value)` of every parameter that has changed since the last run."""
    params, changed = read_params(), {}
    for name, value in _recorded(read_section(CellsConfig, "cells", params)):
        before, now = flat({name: value}), flat({name: _section(params, name)})
        for place in {**before, **now}:
            if before.get(place) != now.get(place):
                changed[place] = f"{place} {_shown(now, place)} (was {_shown(before, place)})"
    return list(changed.values())


def _recorded(cells: CellsConfig) -> Iterator[tuple[str, Any]]:
    """Yield the sections that results were made with; dvc.lock keeps cells of earlier runs too."""
    wanted = {f"probe@{p}-{r}" for p in cells.probes for r in cells.representations}
    for name, stage in locked_stages().items():
        if name in wanted or not name.startswith("probe@"):
            sections = (stage.get("params") or {}).get(str(PARAMS)) or {}
            yield from ((part, value) for part, value in sections.items() if part not in LOOKS)


def flat(values: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """Return nested sections as one, by dotted names."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{place}{name}.")
        else:
            found[f"{place}{name}"] = value
    return found


def _section(params: Mapping[str, Any], name: str) -> Any:
    value: Any = params
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _shown(values: Mapping[str, Any], place: str) -> str:
    return str(values[place]) if place in values else "not set"
