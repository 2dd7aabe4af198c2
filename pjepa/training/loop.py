"""Pretraining: epoch -> step -> log -> checkpoint, each short."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from pjepa.config.pjepa import PjepaConfig
from pjepa.errors import InputError
from pjepa.model.jepa import Batch, Jepa
from pjepa.model.release import init_selection
from pjepa.prefetch import Prefetch
from pjepa.progress import Meter, say
from pjepa.training.checkpoint import Progress, resumed
from pjepa.training.data import (
    TrainingTake,
    epoch_steps,
    packed_steps,
    with_segments,
)
from pjepa.training.monitors import collapse_warning, effective_rank, target_std
from pjepa.training.saver import Saver
from pjepa.training.schedule import learning_rate
from pjepa.training.setup import measure_statistics, new_model, optimizer_for, warn_of_style
from pjepa.training.team import Team
from pjepa.work import write_json

RANK_SAMPLE = 2048  # tokens whose effective rank is taken: the first of an epoch's last step
STARVED = 0.05  # share of the time spent waiting for data that is worth a word
Log = Callable[[dict[str, float]], None]


@dataclass
class Trainer:
    """The model, what trains it, and how fast that goes."""

    model: Jepa
    optimizer: torch.optim.Optimizer
    config: PjepaConfig
    team: Team = field(default_factory=Team)

    def __post_init__(self) -> None:
        self.forward: nn.Module = self.team.wrapped(self.model)
        self.started, self.tokens, self.waited = time.monotonic(), 0, 0.0
        if self.config.compile:
            for block in [*self.model.student.blocks, *self.model.teacher.blocks,
                          *self.model.predictor.blocks]:  # fmt: skip
                block.compile(dynamic=True)

    def step(self, batches: Sequence[Batch], lr: float, seed: int) -> tuple[float, int, Tensor]:
        """One optimiser step and one EMA step; returns (summed loss, number of targets, them)."""
        torch.manual_seed(seed)  # dropout, the same after a restart
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        count = int(self.team.total(sum(int(batch.target.sum()) for batch in batches)))
        self.optimizer.zero_grad(set_to_none=True)
        losses, targets = [], []
        for number, batch in enumerate(batches):
            with self.team.passing(last=number == len(batches) - 1):
                loss, found = self._pass(batch, count)
                losses.append(loss)
                targets.append(found)
        self._update()
        self.tokens += sum(len(batch.target) for batch in batches)
        return self.team.total(float(sum(losses))) * count, count, torch.cat(targets)

    def _pass(self, batch: Batch, count: int) -> tuple[float, Tensor]:
        """Forward and backward of one batch; gradients add up over the step."""
        config = self.config
        kind = torch.device(config.device).type
        with torch.autocast(kind, torch.bfloat16, enabled=config.precision == "bf16"):
            loss, targets = self.forward(batch.to(config.device), count)
        (loss * self.team.size).backward()  # a team averages gradients; Eq. 2 sums them
        return float(loss.detach()), targets.detach()

    def _update(self) -> None:
        """Clipped AdamW, then the teacher; a gradient that is not finite changes nothing."""
        parameters = self.model.trained_parameters()
        norm = torch.nn.utils.clip_grad_norm_(parameters, self.config.clip_grad)
        if not torch.isfinite(norm):
            raise InputError(
                "pretrain: the loss or its gradient is not finite; the last good state is kept: "
                "lower pjepa.lr or pjepa.clip_grad and run again"
            )
        self.optimizer.step()
        self.model.update_teacher(self.config.ema)

    def pace(self) -> str:
        """Tokens per second, and the time lost waiting for them if it matters."""
        elapsed = max(time.monotonic() - self.started, 1e-9)
        text = f"{self.tokens / elapsed:.0f} tokens/s"
        share = self.waited / elapsed
        return text + (f", {100 * share:.0f} % waiting for data" if share > STARVED else "")


def pretrain(
    takes: Sequence[TrainingTake],
    config: PjepaConfig,
    work: Path,
    snapshots: Path,
    log: Log,
    team: Team | None = None,
) -> Jepa:
    """Trains to the last epoch, continuing where a killed run left its state in `work`."""
    team = team or Team()
    torch.set_num_threads(config.threads)
    model = new_model(config, takes)
    if config.init_from is None:
        measure_statistics(model.student, takes)
        model.teacher.copy_statistics(model.student)
    takes = with_segments(takes, lambda t: model.student.segments(t.features, t.segment, t.take_id))
    trainer = Trainer(model, optimizer_for(model, config), config, team)
    progress, saver = resumed(work / "state.pt", model, trainer.optimizer)
    if team.lead:
        warn_of_style(takes, config)
        for entry in progress.history:
            log(entry)
    _train(trainer, takes, progress, saver, work / "snapshots", log)
    if team.lead:
        model.student.save_pretrained(work / "snapshots" / f"{progress.epoch:05d}")
        if config.init_from is not None:  # `select` passes on which labels chose it
            origin = {"selection_labels": init_selection(config.init_from)}
            write_json(work / "snapshots" / "origin.json", origin)
        shutil.rmtree(snapshots, ignore_errors=True)
        snapshots.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(work / "snapshots", snapshots)
    return model


def _train(
    trainer: Trainer,
    takes: Sequence[TrainingTake],
    progress: Progress,
    saver: Saver,
    snapshots: Path,
    log: Log,
) -> None:
    """All epochs that are left; the leader logs, keeps snapshots and saves the resume state."""
    config, lead = trainer.config, trainer.team.lead
    with Meter("pretrain", config.epochs, "epoch", quiet=not lead) as meter:
        meter.advance(progress.epoch, resumed=True)

        def after_step() -> None:
            meter.advance(0, f"loss {progress.loss / progress.targets:.4f}, {trainer.pace()}")
            if lead:
                saver.save_when_due()

        while progress.epoch < config.epochs:
            entry = train_epoch(trainer, takes, progress, after_step)
            meter.advance(
                1,
                f"loss {entry['loss']:.4f}, target std {entry['target_std']:.3f}, {trainer.pace()}",
            )
            if lead:
                log(entry)
                if progress.epoch % config.snapshot_every == 0:
                    name = f"{progress.epoch:05d}"
                    trainer.model.student.save_pretrained(snapshots / name)
                saver.save_when_due()


def train_epoch(
    trainer: Trainer,
    takes: Sequence[TrainingTake],
    progress: Progress,
    after_step: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """The rest of one pass over all takes; returns its log entry and moves `progress` on."""
    config, team = trainer.config, trainer.team
    steps = epoch_steps(takes, progress.epoch, config)
    left = [team.share(views) for views in steps[progress.done :]]
    targets = torch.zeros(0)
    packed = packed_steps(left, progress.epoch, config, trainer.model.student.config.d_in)
    with Prefetch(packed) as ready:
        for batches in ready:
            lr = learning_rate(
                config.lr, progress.epoch, progress.step,
                config.milestones, config.gamma, config.warmup_steps,
            )  # fmt: skip
            seed = config.seed * 1_000_003 + progress.step
            loss, count, targets = trainer.step(batches, lr, seed)
            progress.loss, progress.targets = progress.loss + loss, progress.targets + count
            progress.step, progress.done = progress.step + 1, progress.done + 1
            if progress.done < len(steps):
                after_step()
        trainer.waited += ready.waited
    return _epoch_entry(trainer, team.gathered(targets), progress)


def _epoch_entry(trainer: Trainer, targets: Tensor, progress: Progress) -> dict[str, float]:
    """What is logged of a finished epoch; warns once when the targets collapse."""
    std, rank = target_std(targets), effective_rank(targets[:RANK_SAMPLE])
    warning = collapse_warning(std, rank)
    warned = any(collapse_warning(h["target_std"], h["effective_rank"]) for h in progress.history)
    if warning and not warned and trainer.team.lead:
        say(f"pretrain: epoch {progress.epoch + 1}: {warning}")
    entry = {
        "loss": progress.loss / progress.targets,
        "target_std": std,
        "effective_rank": rank,
        "lr": float(trainer.optimizer.param_groups[0]["lr"]),
    }
    progress.history.append(entry)
    progress.epoch, progress.done, progress.loss, progress.targets = progress.epoch + 1, 0, 0.0, 0
    return entry
