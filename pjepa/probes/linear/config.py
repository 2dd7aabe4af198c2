"""`probe.linear`: logistic regression on single tokens."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, field_validator

from pjepa.core.section import Section


class PaperFitConfig(Section):
    """The supplement's recipe: AdamW, 30 epochs, two drops. Underfits at small scale."""

    epochs: int = Field(30, ge=1)
    lr: float = Field(1e-3, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    milestones: tuple[int, ...] = (5, 15)
    gamma: float = Field(0.1, gt=0, le=1)


class LinearConfig(Section):
    """Logistic regression to convergence; `l2` is tried from strong to weak on held-out groups."""

    purpose: ClassVar[str] = "logistic regression on single tokens."
    tuned: ClassVar[tuple[str, ...]] = ("max_iterations",)

    l2: tuple[float, ...] = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4)
    tolerance: float = Field(1e-4, gt=0)
    max_iterations: int = Field(500, ge=1)
    paper: PaperFitConfig = PaperFitConfig()

    @field_validator("l2")
    @classmethod
    def strong_to_weak(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not value or any(v <= 0 for v in value):
            raise ValueError("needs at least one positive strength")
        return tuple(sorted(value, reverse=True))


CONFIG = LinearConfig
