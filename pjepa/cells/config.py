"""`cells`: which probes run on which representations. Only `report` tracks this list."""

from __future__ import annotations

from typing import ClassVar

from pydantic import ValidationInfo, field_validator

from pjepa.core.section import Section
from pjepa.probes import probe_names

CONTROLS = ("raw", "smooth", "segment_mean", "history", "time")
ENCODED = ("pjepa", "pjepa_segment", "random")
OPTIONAL = ("forecast",)  # only with pjepa.neighbours
PROBES = probe_names()
KNOWN = {"probes": PROBES, "representations": CONTROLS + ENCODED + OPTIONAL}


class CellsConfig(Section):
    """The cells to run: every probe on every representation listed."""

    tuned: ClassVar[tuple[str, ...]] = ("probes", "representations")

    probes: tuple[str, ...] = ("linear",)
    representations: tuple[str, ...] = CONTROLS + ENCODED

    @field_validator("probes", "representations")
    @classmethod
    def known(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        known = KNOWN[str(info.field_name)]
        unknown = [item for item in value if item not in known]
        if unknown:
            raise ValueError(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}")
        if len(set(value)) != len(value):
            raise ValueError(f"repeated: {', '.join(value)}")
        return value
