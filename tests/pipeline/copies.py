"""A copy of the project with its own Git and DVC, in which commands run as people type them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from dvc.utils.hydra import apply_overrides

from pjepa.tools.params import Params
from pjepa.tools.presets import params_text
from tests.pipeline.in_process import SMALL, merged

ROOT = Path(__file__).resolve().parents[2]
CELLS = ["raw", "pjepa", "pjepa_segment", "random"]
DEMO: dict[str, Any] = merged(
    SMALL,
    {
        "data": {"demo": {"takes": 12, "min_s": 12.0, "max_s": 16.0, "video_size": 64}},
        "pooler": {"kind": "mean", "epochs": 2},
        "pjepa": {"width": 32, "epochs": 3, "lr": 0.01},
        "probe": {"common": {"bootstrap": 20}},
        "cells": {"representations": CELLS},
        "report": {"bootstrap": 20},
    },
)


class Copy:
    """What a clone of the project holds, with its own Git and DVC, and small params."""

    def __init__(self, folder: Path, changes: Mapping[str, Any] = DEMO) -> None:
        self.folder = folder
        folder.mkdir()
        for name in source_files():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((ROOT / name).read_bytes())
        self.edit_params(changes)
        self.run("git", "init", "--quiet")
        self.run("git", "config", "user.name", "test")
        self.run("git", "config", "user.email", "test@localhost")
        self.commit()

    def run(self, *command: object, fails: bool = False) -> str:
        """Runs a command in the copy, `pjepa` with its own code; returns stdout and stderr."""
        words = [str(word) for word in command]
        if words[0] == "pjepa":
            words[:1] = [sys.executable, "-m", "pjepa"]
        done = subprocess.run(
            words, cwd=self.folder, env=environment(self.folder),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode != 0) == fails, f"{' '.join(words)}\n{done.stdout}"
        return done.stdout

    def commit(self) -> None:
        self.run("git", "add", "--all")
        self.run("git", "commit", "--quiet", "--message", "state")

    def edit_params(self, changes: Mapping[str, Any]) -> None:
        path = self.folder / "params.yaml"
        values = merged(yaml.safe_load(path.read_text()), changes)
        path.write_text(params_text(Params.model_validate(values)))

    def change(self, *settings: str) -> None:
        """Writes settings into params.yaml as `dvc exp run -S` would."""
        apply_overrides(str(self.folder / "params.yaml"), [*settings])

    def lock(self) -> dict[str, dict[str, Any]]:
        return yaml.safe_load((self.folder / "dvc.lock").read_text())["stages"]

    def hashes(self) -> dict[str, str]:
        """The content hash of every out, by path."""
        return {out["path"]: out["md5"] for s in self.lock().values() for out in s["outs"]}

    def restore(self) -> None:
        """Back to the commit, outs included."""
        self.run("git", "checkout", "--quiet", ".")
        self.run("dvc", "checkout", "--quiet", "--force")


def source_files() -> list[str]:
    """What a clone would hold, uncommitted files included; results are left behind."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    names = [name for name in listed.split("\0") if name and (ROOT / name).is_file()]
    return [name for name in names if name not in ("dvc.lock", "results/metrics.json")]


def environment(folder: Path) -> dict[str, str]:
    """This interpreter first, the code of `folder`, and nothing of an outer DVC or Git run."""
    outer = ("DVC_", "GIT_", "PJEPA_DATA_ROOT", "PJEPA_DEVICE", "PJEPA_CACHE")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(outer)}
    return kept | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(folder),
        "PJEPA_CACHE": str(folder.with_name(f"{folder.name}-cache")),
        "OMP_NUM_THREADS": "1",
        "PJEPA_WORKERS": "1",
    }


def ran(output: str) -> set[str]:
    """The stages that DVC ran, or would have run had the run-cache not known the result."""
    return set(re.findall(r"(?:Running stage|Stage) '([^']+)'(?=:| is cached)", output))


def cells(*names: str) -> set[str]:
    return {f"probe@linear-{name}" for name in names}
