"""Curves for DVC: one dvclive step per epoch, replayed after a restart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

Log = Callable[[dict[str, float]], None]  # one epoch's numbers by name


@contextmanager
def live_log(folder: Path) -> Iterator[Log]:
    """Yield a function that logs one epoch's entry under `folder`."""
    from dvclive import Live

    with Live(str(folder), dvcyaml=None, save_dvc_exp=False, report=None) as live:

        def log(entry: dict[str, float]) -> None:
            for name, value in entry.items():
                live.log_metric(name, value)
            live.next_step()

        yield log
