"""`report`: what the report shows."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, ValidationInfo, field_validator

from pjepa.core.section import Section
from pjepa.probes import probe_names


class ReportConfig(Section):
    """Size of the report: `timelines` takes are drawn, best, median and worst by gain, then evenly
    between.

    The page shows up to `takes` of them with `frames` pictures each, and samples further if it
    would be larger than `page_mb`. Maps show up to `map_points` segments of whole takes.
    """

    purpose: ClassVar[str] = "What the report shows."
    tuned: ClassVar[tuple[str, ...]] = ("timelines", "takes", "frames", "git_revision")

    timelines: int = Field(4, ge=0)
    takes: int = Field(200, ge=1)
    frames: int = Field(16, ge=0)
    page_mb: float = Field(15.0, ge=1)
    map_points: int = Field(1500, ge=10)
    progress_bins: int = Field(20, ge=2)
    length_bins: int = Field(4, ge=1)
    bootstrap: int = Field(1000, ge=10)
    seed: int = Field(0, ge=0)
    # Names the commit on the page. It is no input of the stage, so the same inputs on another
    # commit give other bytes; turn it off where they must be the same.
    git_revision: bool = True


# `cells`: which probes run on which representations.

CONTROLS = ("raw", "smooth", "segment_mean", "history", "time")
ENCODED = ("pjepa", "pjepa_segment", "random")
OPTIONAL = ("forecast",)  # only with pjepa.neighbours
PROBES = probe_names()
KNOWN = {"probes": PROBES, "representations": CONTROLS + ENCODED + OPTIONAL}


class CellsConfig(Section):
    """The cells to run: every probe on every representation listed."""

    purpose: ClassVar[str] = (
        "Which probes run on which representations. Only `report` tracks this list."
    )
    tuned: ClassVar[tuple[str, ...]] = ("probes", "representations")

    probes: tuple[str, ...] = ("linear",)
    representations: tuple[str, ...] = CONTROLS + ENCODED

    @field_validator("probes", "representations")
    @classmethod
    def of_these(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        names = KNOWN[str(info.field_name)]
        unknown = [item for item in value if item not in names]
        if unknown:
            raise ValueError(f"unknown: {', '.join(unknown)}; known: {', '.join(names)}")
        if len(set(value)) != len(value):
            raise ValueError(f"repeated: {', '.join(value)}")
        return value
