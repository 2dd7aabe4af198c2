"""One P-JEPA training step: time and memory. `python -m benchmarks.train_step [--json FILE]`.

Reference: the straightforward version in `examples.pjepa_plain` (padding, dense masks), same
weights, same loss, alternately in one run, one thread each, every case in its own process. Memory
is the peak above the process's size just before its first step.

Where the CPU can compute in bf16, the same step in bf16 is measured beside it.

`--long` adds a step at the paper's width, and a 40-minute take there: it must fit into 8 GB.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import numpy as np
from torch import Tensor

from benchmarks.workers import Table, Work, Worker, alternately, resident, row
from examples.pjepa_plain import PlainJepa
from pjepa.model.objective import Batch, Jepa
from pjepa.pretrain.config import PjepaConfig
from pjepa.pretrain.data import TrainingTake, pack, view
from pjepa.pretrain.feed import FileTokens
from pjepa.pretrain.loop import Progress, Trainer, pretrain
from pjepa.pretrain.setup import measure, new_model, optimizer_for
from pjepa.ui.device import bf16_trial

TAKES = (500, 900, 1500, 3000)
NEIGHBOURS = (-2, -1, 1, 2)
SEGMENT = 45


def synthetic_take(number: int, tokens: int, d_in: int) -> TrainingTake:
    """Return a take of noise in segments of about 45 tokens."""
    rng = np.random.default_rng(number)
    lengths = rng.integers(SEGMENT // 2, 2 * SEGMENT, tokens // (SEGMENT // 2))
    segment = np.repeat(np.arange(len(lengths)), lengths)[:tokens]
    features = rng.standard_normal((tokens, d_in), dtype=np.float32)
    return TrainingTake(number, f"take-{number}", features, segment)


def step_config() -> PjepaConfig:
    return PjepaConfig(
        width=256, heads=4, predictor_heads=4, mask_ratio=0.8, threads=1, input_norm="none"
    )


def inputs(kind: str) -> tuple[PjepaConfig, list[TrainingTake], Batch]:
    """Return the settings, takes and batch of a case; `KIND bf16` is a case in bf16."""
    kind, _, bf16 = kind.partition(" ")
    config, d_in = step_config(), 2048
    lengths: tuple[int, ...] = TAKES
    if kind == "neighbours":
        config = config.model_copy(update={"neighbours": NEIGHBOURS})
    elif kind == "wide":
        config, lengths = PjepaConfig(mask_ratio=0.8, threads=1, input_norm="none"), (1000,)
    if bf16:
        config = config.model_copy(update={"precision": bf16})
    takes = [synthetic_take(n, tokens, d_in) for n, tokens in enumerate(lengths)]
    return config, takes, packed(takes, config)


def packed(takes: list[TrainingTake], config: PjepaConfig) -> Batch:
    """Return whole takes as one batch."""
    import torch

    tokens = FileTokens(takes, torch.device("cpu"))
    return pack([view(take, 0, config) for take in takes], 0, config, tokens)


def case(kind: str) -> Work:
    """Return a callable for one optimiser step on some takes, which returns the first loss."""
    config, takes, batch = inputs(kind)
    model = new_model(config, takes, measure(takes))
    if kind != "plain":
        trainer = Trainer(model, config)
        return lambda: _mean_loss(trainer, batch)
    return plain_step(model, batch, config)


def _mean_loss(trainer: Trainer, batch: Batch) -> float:
    trainer.progress = Progress()
    trainer.step([batch])
    return trainer.progress.means()[0]


def plain_step(model: Jepa, batch: object, config: PjepaConfig) -> Work:
    """Return the same step of the straightforward version."""
    import torch

    plain = PlainJepa(model)
    optimizer = optimizer_for(plain.model, config)

    def work() -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = plain.loss(batch)  # type: ignore[arg-type]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(plain.model.trained_parameters(), config.clip_grad)
        optimizer.step()
        plain.model.update_teacher(config.ema)
        return float(loss.detach())

    return work


def long_take() -> Work:
    """Return a step on 9,600 tokens at d 1408, activations recomputed.

    Returns peak GB of the process.
    """
    config = PjepaConfig(mask_ratio=0.6, threads=1, checkpoint_activations=True)
    take = synthetic_take(0, 9600, 2048)
    trainer = Trainer(new_model(config, [take], measure([take])), config)

    def work() -> float:
        trainer.step([packed([take], config)])
        return resident("VmHWM") / 1024

    return work


def throughput(tokens: int, takes: int, budget: int) -> Work:
    """Return an epoch of the real loop over short takes.

    Returns (tokens/s, share of time waiting).
    """
    config = PjepaConfig(
        width=128, heads=4, predictor_heads=4, epochs=1, threads=1, batch_tokens=budget,
        input_norm="none",
    )  # fmt: skip
    made = [synthetic_take(n, tokens, 512) for n in range(takes)]

    def work() -> tuple[float, float]:
        seen: list[Trainer] = []
        step = Trainer.step

        def remember(self: Trainer, batches: Sequence[Batch]) -> Tensor:
            seen[:] = [self]
            return step(self, batches)

        with tempfile.TemporaryDirectory() as folder, mock.patch.object(Trainer, "step", remember):
            pretrain(made, config, Path(folder) / "w", Path(folder) / "o", lambda entry: None)
        elapsed = time.monotonic() - seen[0].started
        return seen[0].tokens / elapsed, seen[0].waited / elapsed

    return work


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--long", action="store_true", help="also the 40-minute take (minutes)")
    options = parser.parse_args()
    kinds = ["ours", "plain", "neighbours", *(("wide",) if options.long else ())]
    if not bf16_trial():
        kinds += [f"{kind} bf16" for kind in ("ours", "wide") if kind in kinds]
    found = alternately({k: Worker(case, k) for k in kinds}, options.rounds)
    ours, plain = found["ours"], found["plain"]
    print(f"loss: ours {ours['result']:.6f}, plain {plain['result']:.6f}, one thread")
    table = Table()
    table.add("step, takes of 500/900/1500/3000 tokens", row(ours["s"], plain["s"], "s"))
    table.add("its memory", row(ours["MB"], plain["MB"], "MB"))
    asked = row(found["neighbours"]["s"], ours["s"], "s")
    table.add("step with four neighbours (reference: without)", asked)
    names = {"ours": "this step", "wide": "1,000 tokens at d 1408"}
    for kind in ("ours", "wide"):
        if f"{kind} bf16" in kinds:
            faster = row(found[f"{kind} bf16"]["s"], found[kind]["s"], "s")
            table.add(f"{names[kind]} in bf16 (reference: fp32)", faster)
    add_throughput(table, options.rounds)
    if options.long:
        size = alternately({"long": Worker(long_take)}, 0)["long"]["result"]
        table.add("peak memory, 9,600 tokens at d 1408 (reference: 8)", row(size, 8.0, "GB"))
    table.save(options.json)


def add_throughput(table: Table, rounds: int) -> None:
    """Add tokens per second by budget and number of takes, and the time spent waiting."""
    shapes = {"256": (40, 256), "1024": (40, 1024), "4096": (40, 4096), "more": (160, 4096)}
    workers = {k: Worker(throughput, 250, takes, budget) for k, (takes, budget) in shapes.items()}
    paces = {name: found["result"] for name, found in alternately(workers, rounds).items()}
    for budget in ("1024", "4096"):
        found = row(paces[budget][0], paces["256"][0], "/s")
        table.add(f"tokens/s, budget {budget} (reference: 256)", found)
    table.add("tokens/s, 160 takes (reference: 40)", row(paces["more"][0], paces["4096"][0], "/s"))
    table.add("share of time waiting for data (reference: all)", row(paces["more"][1], 1.0, ""))


if __name__ == "__main__":
    main()
