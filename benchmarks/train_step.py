"""One P-JEPA training step: time and memory. `python -m benchmarks.train_step [--json FILE]`.

Reference: the straightforward version in `benchmarks.plain_jepa` (padding, dense masks), same
weights, same loss, alternately in one run, one thread each, every case in its own process. Memory
is the peak above the process's size just before its first step.

`--long` adds a 40-minute take at the paper's width: it must fit into 8 GB.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.plain_jepa import PlainJepa
from benchmarks.workers import Table, Work, Worker, alternately, resident, row
from pjepa.config.pjepa import PjepaConfig
from pjepa.model.jepa import Jepa
from pjepa.training.data import TrainingTake, View, pack
from pjepa.training.loop import Trainer, pretrain
from pjepa.training.setup import new_model, optimizer_for

TAKES = (500, 900, 1500, 3000)
SEGMENT = 45


def synthetic_take(number: int, tokens: int, d_in: int) -> TrainingTake:
    """A take of noise in segments of about 45 tokens."""
    rng = np.random.default_rng(number)
    lengths = rng.integers(SEGMENT // 2, 2 * SEGMENT, tokens // (SEGMENT // 2))
    segment = np.repeat(np.arange(len(lengths)), lengths)[:tokens]
    features = rng.standard_normal((tokens, d_in), dtype=np.float32)
    return TrainingTake(number, f"take-{number}", features, segment)


def step_config() -> PjepaConfig:
    return PjepaConfig(
        width=256, heads=4, predictor_heads=4, mask_ratio=0.8, threads=1, input_norm="none"
    )


def case(kind: str) -> Work:
    """One optimiser step on four takes; returns the loss of the first."""
    config, d_in = step_config(), 2048
    takes = [synthetic_take(n, tokens, d_in) for n, tokens in enumerate(TAKES)]
    model = new_model(config, takes)
    batch = pack([View(take) for take in takes], 0, config, d_in)
    if kind == "ours":
        trainer = Trainer(model, optimizer_for(model, config), config)
        return lambda: _mean_loss(trainer, batch)
    return plain_step(model, batch, config)


def _mean_loss(trainer: Trainer, batch: object) -> float:
    loss, count, _ = trainer.step([batch], trainer.config.lr, 0)  # type: ignore[list-item]
    return loss / count


def plain_step(model: Jepa, batch: object, config: PjepaConfig) -> Work:
    """The same step of the straightforward version."""
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
    """A step on 9,600 tokens at d 1408, activations recomputed; returns peak GB of the process."""
    config = PjepaConfig(mask_ratio=0.6, threads=1, checkpoint_activations=True)
    take = synthetic_take(0, 9600, 2048)
    model = new_model(config, [take])
    trainer = Trainer(model, optimizer_for(model, config), config)

    def work() -> float:
        trainer.step([pack([View(take)], 0, config, 2048)], config.lr, 0)
        return resident("VmHWM") / 1024

    return work


def throughput(tokens: int, takes: int, budget: int) -> Work:
    """An epoch of the real loop over short takes; returns (tokens/s, share of time waiting)."""
    config = PjepaConfig(
        width=128, heads=4, predictor_heads=4, epochs=1, threads=1, batch_tokens=budget,
        input_norm="none",
    )  # fmt: skip
    made = [synthetic_take(n, tokens, 512) for n in range(takes)]

    def work() -> tuple[float, float]:
        seen: list[Trainer] = []
        original = Trainer.__post_init__

        def remember(self: Trainer) -> None:
            original(self)
            seen.append(self)

        Trainer.__post_init__ = remember  # type: ignore[method-assign]
        with tempfile.TemporaryDirectory() as folder:
            pretrain(made, config, Path(folder) / "w", Path(folder) / "o", lambda entry: None)
        Trainer.__post_init__ = original  # type: ignore[method-assign]
        elapsed = time.monotonic() - seen[0].started
        return seen[0].tokens / elapsed, seen[0].waited / elapsed

    return work


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--long", action="store_true", help="also the 40-minute take (minutes)")
    options = parser.parse_args()
    found = alternately({k: Worker(case, k) for k in ("ours", "plain")}, options.rounds)
    ours, plain = found["ours"], found["plain"]
    print(f"loss: ours {ours['result']:.6f}, plain {plain['result']:.6f}, one thread")
    table = Table()
    table.add("step, takes of 500/900/1500/3000 tokens", row(ours["s"], plain["s"], "s"))
    table.add("its memory", row(ours["MB"], plain["MB"], "MB"))
    add_throughput(table, options.rounds)
    if options.long:
        peak = alternately({"long": Worker(long_take)}, 0)["long"]["result"]
        table.add("peak memory, 9,600 tokens at d 1408 (reference: 8)", row(peak, 8.0, "GB"))
    table.save(options.json)


def add_throughput(table: Table, rounds: int) -> None:
    """Tokens per second by budget and by number of takes, and the time spent waiting for them."""
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
