"""`probe`: supervised probes on frozen representations (paper Sec. 3.3, Supplement)."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator

from pjepa.config.section import Section

SelectOn = Literal["holdout", "val", "test", "last"]
Protocol = Literal["segments", "seconds"]


class ProbeCommonConfig(Section):
    """What every probe shares: who is fitted, chosen and reported on, and how it is streamed."""

    seed: int = Field(0, ge=0)  # of the bootstrap and of the takes a label budget keeps
    seeds: tuple[int, ...] = (0,)  # one training each; a fit to the optimum needs none
    bootstrap: int = Field(1000, ge=10)
    threads: int = Field(2, ge=1)
    device: str = "cpu"
    input_norm: Literal["none", "standardize"] = "none"  # of trained probes, by the fitted takes
    select_on: SelectOn = "holdout"  # val, test: published habits, marked in every table
    label_fraction: float = Field(1.0, gt=0, le=1)  # of the train takes (Table 4)
    streaming: tuple[Protocol, ...] = ("segments", "seconds")  # how the context grows (Table 3)
    stream_step_s: float = Field(8.0, gt=0)  # seconds that `seconds` grows by

    @field_validator("seeds")
    @classmethod
    def some_seeds(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or min(value) < 0 or len(set(value)) != len(value):
            raise ValueError("needs at least one seed, none negative, none twice")
        return value


class PaperFitConfig(Section):
    """The supplement's recipe: AdamW, 30 epochs, two drops. Underfits at small scale."""

    epochs: int = Field(30, ge=1)
    lr: float = Field(1e-3, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    milestones: tuple[int, ...] = (5, 15)
    gamma: float = Field(0.1, gt=0, le=1)


class LinearConfig(Section):
    """Logistic regression to convergence; `l2` is tried from strong to weak on held-out groups."""

    l2: tuple[float, ...] = (1e-1, 1e-2, 1e-3, 1e-4)
    tolerance: float = Field(1e-4, gt=0)
    max_iterations: int = Field(500, ge=1)
    paper: PaperFitConfig = PaperFitConfig()

    @field_validator("l2")
    @classmethod
    def strong_to_weak(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not value or any(v <= 0 for v in value):
            raise ValueError("needs at least one positive strength")
        return tuple(sorted(value, reverse=True))
