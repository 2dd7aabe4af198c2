"""The pipeline's stages in one process: a temporary project folder, given params, real files.

`project(tmp_path, monkeypatch, values)` makes the folder the working one; `run_stages()` runs every
stage as `dvc repro` would, in order, and returns what they said. Small sizes are in `SMALL`.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch

from pjepa.core.section import read_section
from pjepa.report.config import CellsConfig
from pjepa.storage.roots import data_root
from pjepa.takes.config import DataConfig
from pjepa.takes.sources.scan import write_scan
from pjepa.tools.params import Params, check_params
from pjepa.tools.paths import source_list
from pjepa.tools.presets import params_text

STAGES = (
    "takes", "patches", "pooler", "tokens", "pretrain", "select", "curve", "controls", "features",
    "probe", "report",
)  # fmt: skip
SMALL: dict[str, Any] = {  # sizes only: what a stage does is not changed
    "machine": {"device": "cpu", "workers": 1},
    "threads": 1,
    "patches": {
        "backbone": "vjepa2_1_vit_tiny",
        "checkpoint": "random",
        "frames_per_window": 16,
        "crop": 32,
        "grid": 1,
    },
    "pjepa": {
        "width": 16,
        "depth": 1,
        "heads": 2,
        "predictor_depth": 1,
        "predictor_heads": 2,
        "epochs": 2,
        "milestones": [1],
        "warmup_steps": 0,
        "snapshot_every": 1,
        "batch_tokens": 512,
    },
    "features": {"random_draws": 1},
    "probe": {
        "common": {"bootstrap": 10},
        "linear": {"l2": [0.01], "max_iterations": 20, "paper": {"epochs": 1}},
    },
    "cells": {"representations": ["raw", "segment_mean", "pjepa"]},
    "report": {"timelines": 1, "bootstrap": 10},
}


def merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values; what comes later wins."""
    found: dict[str, Any] = {}
    for part in parts:
        for key, value in part.items():
            both = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
            found[key] = merged(found[key], value) if both else deepcopy(value)
    return found


def write_params(values: Mapping[str, Any]) -> Params:
    """params.yaml of the working folder: the defaults, and on them `values`."""
    params = Params.model_validate(values)
    Path("params.yaml").write_text(params_text(params))
    return params


def project(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    values: Mapping[str, Any],
    root: Path | None = None,
) -> Params:
    """Makes `folder` the project that stages run in; data stands in `root`, else in it too."""
    folder.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("DVC_ROOT", str(folder))
    monkeypatch.setenv("PJEPA_DATA_ROOT", str(root or folder))
    return write_params(values)


def run_stages(stages: Iterable[str] = STAGES, scan: bool = True) -> str:
    """Runs the stages of the working folder and returns what they wrote for people."""
    said = io.StringIO()
    threads = torch.get_num_threads()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            if scan:
                config = read_section(DataConfig, "data")
                write_scan(config, data_root(), source_list(config.source))
            for stage in stages:
                check_params()
                run_stage(stage)
    finally:
        torch.set_num_threads(threads)
    return said.getvalue()


def preloaded() -> None:
    """Imports every stage, so that what is forked later starts at once."""
    for stage in STAGES:
        importlib.import_module(f"stages.{stage}")


def run_stage(stage: str) -> None:
    """One stage; `probe` is every cell that params list."""
    module = importlib.import_module(f"stages.{stage}")
    if stage != "probe":
        module.run()
        return
    cells = read_section(CellsConfig, "cells")
    before = sys.argv
    try:
        for probe in cells.probes:
            for representation in cells.representations:
                sys.argv = ["stages.probe", probe, representation]
                module.run()
    finally:
        sys.argv = before
