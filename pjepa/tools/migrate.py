"""A params.yaml of an earlier version in the form of this one.

Until 0.2 every section named its own device, workers and threads; they are `machine` and `threads`
now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from pjepa.core.machine import MachineConfig
from pjepa.core.section import one_line, read_params
from pjepa.tools.params import Params
from pjepa.tools.presets import params_text
from pjepa.ui.errors import InputError

PLACED = ("device", "workers", "executor", "threads")
OWN_THREADS = "patches"  # the one section that keeps its own


def migrated_text() -> str:
    """Return params.yaml with the same values in the places where they are now."""
    values = read_params()
    moved = {name: list(_old_values(values, name)) for name in PLACED}
    machine = {name: _one(name, moved[name]) for name in MachineConfig.tuned if moved[name]}
    threads = {"threads": _one("threads", moved["threads"])} if moved["threads"] else {}
    rest = {name: _without(name, section) for name, section in values.items()}
    new = {**rest, **threads, "machine": {**machine, **rest.get("machine", {})}}
    try:
        return params_text(Params.model_validate(new))
    except ValidationError as error:
        raise InputError(one_line(error, Params)) from None


def _old_values(values: Mapping[str, Any], name: str) -> Iterator[Any]:
    """Yield the values that sections have for a setting of the machine."""
    for section, inner in values.items():
        if isinstance(inner, dict) and section != "machine":
            own = name == "threads" and section == OWN_THREADS
            if name in inner and not own:
                yield inner[name]
            yield from (part[name] for part in inner.values() if _holds(part, name))


def _holds(part: Any, name: str) -> bool:
    return isinstance(part, dict) and name in part


def _one(name: str, found: list[Any]) -> Any:
    """Return one value for all: the largest number, or the device that is not the CPU."""
    if name == "device":
        return next((value for value in found if value != "cpu"), "cpu")
    return max(found) if name in ("workers", "threads") else found[0]


def _without(section: str, value: Any) -> Any:
    """Return a section without the settings of the machine."""
    if not isinstance(value, dict) or section == "machine":
        return value
    keep_threads = section == OWN_THREADS
    return {
        key: _without("", part)
        for key, part in value.items()
        if key not in PLACED or (key == "threads" and keep_threads)
    }
