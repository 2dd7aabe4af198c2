"""`cells`: which probes run on which representations. Only `report` tracks this list."""

from __future__ import annotations

from pydantic import field_validator

from pjepa.config.section import Section

CONTROLS = ("raw", "smooth", "segment_mean", "history", "time")
ENCODED = ("pjepa", "pjepa_segment", "random")
PROBES = ("linear",)


class CellsConfig(Section):
    """Every probe runs on every representation listed."""

    probes: tuple[str, ...] = PROBES
    representations: tuple[str, ...] = CONTROLS + ENCODED

    @field_validator("probes", "representations")
    @classmethod
    def known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        unknown = [item for item in value if item not in PROBES + CONTROLS + ENCODED]
        if unknown or len(set(value)) != len(value):
            raise ValueError(f"unknown or repeated: {', '.join(unknown) or ', '.join(value)}")
        return value
