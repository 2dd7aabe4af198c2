"""`report`: what the report shows."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from pjepa.core.section import Section


class ReportConfig(Section):
    """Size of the report: `timelines` takes are drawn, best, median and worst by gain, then evenly
    between.

    The page shows up to `takes` of them with `frames` pictures each, and samples further if it
    would be larger than `page_mb`. Maps show up to `map_points` segments of whole takes.
    """

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
