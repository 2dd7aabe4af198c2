"""Probes by name: `pjepa/probes/<name>/` holds a `config.py` and a `probe.py`, loaded on demand.

A cell imports only the code of its own probe, so editing one probe leaves the cells of the others
up to date.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from pjepa.core.section import Section
from pjepa.probes import probe_names
from pjepa.probes.base.scoring import CellData, Probe, Run
from pjepa.storage.reading import read_object
from pjepa.ui.console import InputError


@dataclass(frozen=True)
class ProbeKind:
    """What `probe.py` of a probe offers as `KIND`.

    `fits(cell, config, work)` yields every fit of a cell, resuming what an interrupted run left in
    `work`. `load(folder)` reads back what the fitted probe's `save` wrote. `readings(cell, config,
    truth)` tells how well other targets, known from the demo's truth, are read.
    """

    fits: Callable[[CellData, Any, Path | None], Iterator[Run]]
    load: Callable[[Path], Probe]
    readings: Callable[[CellData, Any, Path], Mapping[str, float]] = lambda cell, config, truth: {}


def probe_config(name: str) -> type[Section]:
    """Return the model of the probe's section of params."""
    return _module(name, "config").CONFIG


def probe_kind(name: str) -> ProbeKind:
    """Return how the probe is fitted and loaded."""
    return _module(name, "probe").KIND


def load_probe(folder: Path) -> Probe:
    """Return the probe of a cell's `model/`; `predict(features, segments)` gives [T, C]."""
    kind = read_object(folder / "config.json").get("kind")
    if kind not in probe_names():
        known = ", ".join(probe_names())
        raise InputError(f"{folder}/config.json: unknown kind of probe {kind!r}; known: {known}")
    return probe_kind(kind).load(folder)


def _module(name: str, part: str) -> Any:
    return import_module(f"pjepa.probes.{name}.{part}")
