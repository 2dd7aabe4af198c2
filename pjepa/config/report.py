"""`report`: what the report shows."""

from __future__ import annotations

from pydantic import Field

from pjepa.config.section import Section


class ReportConfig(Section):
    """`timelines` takes are drawn: best, median and worst by gain, then evenly between."""

    timelines: int = Field(4, ge=0)
    bootstrap: int = Field(1000, ge=10)
    seed: int = Field(0, ge=0)
