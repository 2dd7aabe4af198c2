"""What streaming evaluation by growing prefixes costs: `python -m benchmarks.prefixes`.

Probes that see the whole take (LTContext, FACT) are run again for every new segment (Table 3). The
size is EgoProceL's as the paper gives it: 914 videos, 183 of them tested, 117.9 h, 19,943
segments. Takes and segments are of mean length here, which understates the cost: real ones are
uneven. Ours is a prefix per segment, the reference one pass over every take; CPU seconds of one
thread, measured on one take and multiplied. A GPU gets many prefixes at once, so fewer calls; that
was not run.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from benchmarks.workers import Table, row
from pjepa.probes.base.streamed import segment_steps, streamed
from pjepa.probes.base.trained import Task, TrainedProbe, together
from pjepa.probes.fact.probe import TRAINED_KIND as FACT
from pjepa.probes.ltcontext.probe import TRAINED_KIND as LTCONTEXT

VIDEOS, TESTED, HOURS, SEGMENTS, FPS, CLASSES = 914, 183, 117.9, 19_943, 4, 116
WIDTH = 1408  # of P-JEPA's features
KINDS = {"ltcontext": LTCONTEXT, "fact": FACT}


def mean_take() -> tuple[int, int]:
    """Return tokens and segments of a take of mean length."""
    return round(HOURS * 3600 * FPS / VIDEOS), round(SEGMENTS / VIDEOS)


def cpu_seconds(probe: TrainedProbe, tokens: int, ends: np.ndarray | None) -> float:
    """Return the CPU time of one take in prefixes that end at `ends`, or in one pass."""
    features = np.random.default_rng(0).normal(size=(tokens, WIDTH)).astype(np.float32)
    place = np.zeros(tokens, np.int64)
    started = time.process_time()
    if ends is None:
        probe.predict(features, place)
    else:
        streamed(probe, features, place, ends)
    return time.process_time() - started


def main(
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the table.")] = None,
) -> None:
    """Print calls, tokens and CPU hours of the whole test split for each probe."""
    torch.set_num_threads(1)
    table, (tokens, segments) = Table(), mean_take()
    ends = segment_steps(np.arange(tokens) * segments // tokens)
    spans = [(0, int(end)) for end in ends]
    print(f"{TESTED} takes of {tokens} tokens and {segments} segments")
    table.add(
        "tokens to predict from", row(TESTED * int(ends.sum()) / 1e6, TESTED * tokens / 1e6, "M")
    )
    parts = list(together(spans))
    filled = sum(len(part) * part[-1][1] for part in parts)
    table.add(
        "with padding, together (reference: without)",
        row(TESTED * filled / 1e6, TESTED * int(ends.sum()) / 1e6, "M"),
    )
    grouped = row(TESTED * len(parts), TESTED * len(spans), "calls")
    table.add("on a GPU, together (reference: one by one)", grouped)
    for name, kind in KINDS.items():
        probe = kind.new(kind.config(), Task(WIDTH, CLASSES, 0), 0)
        cpu_seconds(probe, 64, None)  # warms up
        ours, other = (cpu_seconds(probe, tokens, e) * TESTED / 3600 for e in (ends, None))
        table.add(f"{name}, one core", row(ours, other, "h"))
    table.save(json_file)


if __name__ == "__main__":
    typer.run(main)
