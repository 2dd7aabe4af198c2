"""Probes by name: `pjepa/probes/<name>/` holds a `config.py` and a `probe.py`, loaded on demand.

A cell imports only the code of its own probe, so editing one probe leaves the cells of the others
up to date.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from pjepa.core.section import Section
from pjepa.probes import probe_names
from pjepa.probes.base.scoring import CellData, Probe, Run
from pjepa.storage.reading import read_object
from pjepa.ui.console import InputError


class ProbeKind:
    """What `probe.py` of a probe offers as `KIND`."""

    def fits(self, cell: CellData, config: Any, work: Path | None) -> Iterator[Run]:
        """Yield every fit of a cell, resuming what an interrupted run left in `work`."""
        raise NotImplementedError

    def load(self, folder: Path) -> Probe:
        """Return the probe that its `save` wrote."""
        raise NotImplementedError

    def readings(self, cell: CellData, config: Any, truth: Path) -> Mapping[str, float]:
        """Return how well other targets, known from the demo's truth, are read."""
        return {}


def probe_config(name: str) -> type[Section]:
    """Return the model of the probe's section of params."""
    config: type[Section] = import_module(f"pjepa.probes.{name}.config").CONFIG
    return config


def probe_kind(name: str) -> ProbeKind:
    """Return how the probe is fitted and loaded."""
    kind: ProbeKind = import_module(f"pjepa.probes.{name}.probe").KIND
    return kind


def load_probe(folder: Path) -> Probe:
    """Return the probe of a cell's `model/`; `predict(features, segments)` gives [T, C]."""
    kind = read_object(folder / "config.json").get("kind")
    if kind not in probe_names():
        known = ", ".join(probe_names())
        raise InputError(f"{folder}/config.json: unknown kind of probe {kind!r}; known: {known}")
    return probe_kind(kind).load(folder)
