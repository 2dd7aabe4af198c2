"""When a resume state is written: often, but never so often that it slows the work."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pjepa.work import whole_file

SAVE_SECONDS = 2.0  # at least this long between two resume states,
SAVE_SHARE = 0.05  # and at most this share of the time spent on writing them


class Saver:
    """Keeps `state()` in a file, written whole: a kill leaves the previous one intact."""

    def __init__(self, path: Path | None, state: Callable[[], dict[str, Any]]) -> None:
        self.path, self.state = path, state
        self.written, self.cost = time.monotonic(), 0.0

    def save_when_due(self, now: bool = False) -> None:
        """Saves if the last state is old enough for its size, or `now`; without a path never."""
        started = time.monotonic()
        due = started - self.written > max(SAVE_SECONDS, self.cost / SAVE_SHARE)
        if self.path is None or not (due or now):
            return
        with whole_file(self.path) as partial:
            torch.save(self.state(), partial)
        self.written = time.monotonic()
        self.cost = self.written - started

    def saved(self, device: torch.device | str = "cpu") -> dict[str, Any] | None:
        """What was saved last, if anything."""
        if self.path is None or not self.path.exists():
            return None
        found: dict[str, Any] = torch.load(self.path, weights_only=True, map_location=device)
        return found
