"""What dvc.lock says of the results on disk: with which parameters they were made."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pjepa.core.files import read_yaml
from pjepa.core.section import read_params
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
    then: dict[str, Any] = {}
    for stage in locked_stages().values():
        sections = (stage.get("params") or {}).get(str(PARAMS)) or {}
        then |= {name: value for name, value in sections.items() if name not in LOOKS}
    now = {name: _section(read_params(), name) for name in then}
    before, present = flat(then), flat(now)
    return [
        f"{place} {_shown(present, place)} (was {_shown(before, place)})"
        for place in {**before, **present}
        if before.get(place) != present.get(place)
    ]


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
