"""`probe`: supervised probes on frozen representations (paper Sec. 3.3, Supplement)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator

from pjepa.core.machine import MachineSection
from pjepa.core.section import Section
from pjepa.storage.reading import read_object
from pjepa.storage.writing import atomic_folder, write_json

SelectOn = Literal["holdout", "val", "test", "last"]
ProtocolName = Literal["segments", "seconds"]


class ProbeCommonConfig(MachineSection):
    """Settings shared by all probes: takes to fit, choose and report on, and streaming."""

    purpose: ClassVar[str] = (
        "Supervised probes on frozen representations (paper Sec. 3.3, Supplement)."
    )
    tuned: ClassVar[tuple[str, ...]] = ("seeds", "input_norm", "select_on", "label_fraction")

    seed: int = Field(0, ge=0)  # of the bootstrap and of the takes a label budget keeps
    seeds: tuple[int, ...] = (0,)  # one training each; a fit to the optimum needs none
    bootstrap: int = Field(1000, ge=10)
    input_norm: Literal["none", "standardize"] = "none"  # of trained probes, by the fitted takes
    select_on: SelectOn = "holdout"  # val, test: published habits, marked in every table
    label_fraction: float = Field(1.0, gt=0, le=1)  # of the train takes (Table 4)
    streaming: tuple[ProtocolName, ...] = ("segments", "seconds")  # how the context grows (Table 3)
    stream_step_s: float = Field(8.0, gt=0)  # seconds that `seconds` grows by

    @field_validator("seeds")
    @classmethod
    def some_seeds(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if not value or min(value) < 0 or len(set(value)) != len(value):
            raise ValueError("needs at least one seed, none negative, none twice")
        return value


class TrainedConfig(Section):
    """Settings of a trained probe's training; each probe has its own defaults."""

    tuned: ClassVar[tuple[str, ...]] = ("epochs", "lr")

    optimizer: Literal["adamw", "adam"] = "adamw"  # adam: weight decay is part of the gradient
    epochs: int = Field(30, ge=1)
    lr: float = Field(1e-3, gt=0)
    weight_decay: float = Field(0.0, ge=0)
    schedule: Literal["step", "cosine"] = "step"
    milestones: tuple[int, ...] = (5, 15)  # step: epochs at which lr falls by gamma
    gamma: float = Field(0.1, gt=0, le=1)
    constant_epochs: int = Field(0, ge=0)  # cosine: epochs before it begins
    lr_min: float = Field(0.0, ge=0)  # cosine: where it ends
    clip_grad: float = Field(0.0, ge=0)  # 0: not clipped
    batch_takes: int = Field(1, ge=1)


UNLABELLED = "no take has labels, so there is nothing to fit a probe on"


def all_unlabelled(labels: Mapping[str, np.ndarray]) -> bool:
    """Return whether no token of any take has a label."""
    return not any((part >= 0).any() for part in labels.values())


def write_skipped(out: Path, why: str) -> None:
    """Write a cell's folder that records why there are no results."""
    with atomic_folder(out) as folder:
        write_json(folder / "metrics.json", {})
        write_json(folder / "details.json", {"skipped": why})


def skipped_reason(folder: Path) -> str | None:
    """Return why a cell was skipped; None if it has results or is not there."""
    details = folder / "details.json"
    return read_object(details).get("skipped") if details.exists() else None
