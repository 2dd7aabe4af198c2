"""Which parameters experiments differ in, and which of them are other runs of the same settings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pjepa.tools.compare.experiments import Experiment

ABSENT = "(absent)"
SEED = re.compile(r"(^|[._])seeds?$")
NEUTRAL = ("machine", "report", "cells")  # sections that change no run


def by_settings(experiments: Sequence[Experiment]) -> list[list[Experiment]]:
    """Return experiments with the same settings together.

    Seeds, folds and the machine are no settings.
    """
    found: list[list[Experiment]] = []
    for experiment in experiments:
        for part in found:
            if not changed_settings(part[0].params, experiment.params):
                part.append(experiment)
                break
        else:
            found.append([experiment])
    return found


def changed_settings(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[str]:
    """Return the parameters that differ and make a different experiment, not just another run."""
    return [
        name
        for name in changed_params(first, second)
        if name.split(".")[0] not in NEUTRAL
        and name != "data.fold"
        and (name == "data.seed" or not SEED.search(name))
    ]


def changed_params(
    first: Mapping[str, Any], second: Mapping[str, Any], prefix: str = ""
) -> dict[str, tuple[str, str]]:
    """Return every parameter whose value differs, by its dotted name."""
    found: dict[str, tuple[str, str]] = {}
    for key in dict.fromkeys([*first, *second]):
        a, b = first.get(key, ABSENT), second.get(key, ABSENT)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            found |= changed_params(a, b, f"{prefix}{key}.")
        elif a != b:
            found[f"{prefix}{key}"] = (str(a), str(b))
    return found


def params_table(experiments: Sequence[Experiment]) -> list[list[str]]:
    """Return a row for every parameter that differs: its name and each value.

    The kind of device is one of them: DVC reuses what another device computed.
    """
    first, rows = experiments[0].params, dict[str, list[str]]()
    for place, other in enumerate(experiments[1:], 1):
        for name, (ours, theirs) in changed_params(first, other.params).items():
            row = rows.setdefault(name, [ours] * len(experiments))
            row[place] = theirs
    devices = [experiment.devices for experiment in experiments]
    if len(set(devices)) > 1:
        rows["computed on"] = devices
    return [[name, *values] for name, values in rows.items()]
