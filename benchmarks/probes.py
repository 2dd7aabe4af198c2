"""Time and memory of one training step of the temporal probes at the paper's size, on one thread.

`python -m benchmarks.probes [--rounds N]`. FACT is measured with torch's GRU as well: it is the one
part that we have written anew. CPU seconds, all cases alternately; memory is the peak of the first
step above the size before it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import numpy as np
import torch
import typer

from benchmarks.workers import Work, Worker, alternately
from pjepa.probes.base.trained import ProbeTake, ProbeTrainer, Task
from pjepa.probes.fact import blocks

WIDTH = 2048


def step(probe: str, classes: int, segments: int, length: int, torch_gru: bool = False) -> Work:
    """Return a training step on one take of random features, its segments equally long."""
    if torch_gru:
        blocks.gru_states = lambda gru, x: gru(x)[0]
    random = np.random.default_rng(0)
    labels = np.repeat(random.integers(classes, size=segments), length)
    features = random.normal(size=(len(labels), WIDTH)).astype(np.float32)
    take = ProbeTake("take", features, np.repeat(np.arange(segments), length), labels)
    kind = import_module(f"pjepa.probes.{probe}.probe").KIND
    config = kind.config()
    module = kind.new(config, Task(WIDTH, classes, 0), 0).module.train()
    scale = torch.zeros(WIDTH), torch.ones(WIDTH)
    trainer = ProbeTrainer(module, [take], [], *scale, config, 0, 0)
    return lambda: trainer.step([take], 0)


CASES = {
    "LTContext, T = 4000": ("ltcontext", 202, 80, 50),
    "FACT, T = 2000": ("fact", 116, 20, 100),
    "FACT, T = 2000, torch's GRU": ("fact", 116, 20, 100, True),
}


def main(
    rounds: Annotated[int, typer.Option(help="Timed steps of each case.", min=1)] = 5,
) -> None:
    """Print one row per case."""
    workers = {name: Worker(step, *arguments) for name, arguments in CASES.items()}
    for name, found in alternately(workers, rounds).items():
        print(f"{name:30} {found['s']:8.2f} s {found['MB']:8.0f} MB")


if __name__ == "__main__":
    typer.run(main)
