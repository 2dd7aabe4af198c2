"""Pretraining: epoch -> step -> log -> checkpoint, each short."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from pjepa.config.pjepa import PjepaConfig
from pjepa.errors import InputError
from pjepa.model.centering import fit_style
from pjepa.model.encoder import EncoderConfig, ProcedureEncoder
from pjepa.model.jepa import Batch, Jepa
from pjepa.progress import Meter, say
from pjepa.training.checkpoint import Progress, load_state, save_state
from pjepa.training.data import TrainingTake, epoch_batches, take_share, token_statistics
from pjepa.training.monitors import collapse_warning, effective_rank, target_std
from pjepa.training.schedule import learning_rate

RANK_SAMPLE = 2048  # tokens whose effective rank is taken; the first of an epoch's last batch
SAVE_SECONDS = 2.0  # at least this long between two resume states,
SAVE_SHARE = 0.05  # and at most this share of the time spent on writing them
Log = Callable[[dict[str, float]], None]


def encoder_config(config: PjepaConfig, d_in: int) -> EncoderConfig:
    """The encoder's part of the `pjepa` section."""
    shared = config.model_dump(include=set(EncoderConfig.model_fields))
    causal = config.input_norm == "causal_center"
    shared["style_rank"] = min(config.style_rank, d_in) if causal else 0
    return EncoderConfig(d_in=d_in, **shared)


def new_model(config: PjepaConfig, takes: Sequence[TrainingTake]) -> Jepa:
    """A seeded model that carries the training tokens' statistics."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        model = Jepa(
            encoder_config(config, takes[0].features.shape[1]),
            config.predictor_depth,
            config.predictor_heads,
            config.target_norm,
            config.loss_reduction,
        )
    measure_statistics(model.student, takes)
    model.teacher.copy_statistics(model.student)
    return model.to(config.device)


def measure_statistics(encoder: ProcedureEncoder, takes: Sequence[TrainingTake]) -> None:
    """Fills the encoder's buffers: mean and spread of tokens, and the style of takes."""
    mean, std = token_statistics(takes)
    encoder.mean.copy_(torch.from_numpy(mean))
    encoder.std.copy_(torch.from_numpy(std))
    config = encoder.config
    if config.style_rank:
        tokens = [
            (torch.from_numpy(t.features).float() - encoder.mean) / encoder.std for t in takes
        ]
        style = fit_style(tokens, config.style_rank, config.style_look)
        encoder.style_read.copy_(style.read)
        encoder.style_write.copy_(style.write)
        encoder.style_strength.copy_(style.strength)


def pretrain(
    takes: Sequence[TrainingTake], config: PjepaConfig, work: Path, snapshots: Path, log: Log
) -> Jepa:
    """Trains to the last epoch, continuing where a killed run left its state in `work`."""
    torch.set_num_threads(config.threads)
    warn_of_style(takes, config)
    model = new_model(config, takes)
    optimizer = torch.optim.AdamW(
        model.trained_parameters(), lr=config.lr, weight_decay=config.weight_decay
    )
    progress = load_state(work / "state.pt", model, optimizer)
    for entry in progress.history:
        log(entry)
    saver = Saver(work / "state.pt")
    with Meter("pretrain", config.epochs, "epoch") as meter:
        meter.advance(progress.epoch)
        while progress.epoch < config.epochs:
            entry = train_epoch(model, optimizer, takes, config, progress)
            log(entry)
            meter.advance(1, f"loss {entry['loss']:.4f}, target std {entry['target_std']:.3f}")
            if progress.epoch % config.snapshot_every == 0:
                model.student.save_pretrained(work / "snapshots" / f"{progress.epoch:05d}")
            saver.save_when_due(model, optimizer, progress)
    model.student.save_pretrained(work / "snapshots" / f"{progress.epoch:05d}")
    shutil.rmtree(snapshots, ignore_errors=True)
    snapshots.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(work / "snapshots", snapshots)
    return model


class Saver:
    """Writes the resume state often, but never so often that it slows training."""

    def __init__(self, path: Path) -> None:
        self.path, self.written, self.cost = path, time.monotonic(), 0.0

    def save_when_due(
        self, model: Jepa, optimizer: torch.optim.Optimizer, progress: Progress
    ) -> None:
        """Saves if the last state is old enough for its size."""
        started = time.monotonic()
        if started - self.written > max(SAVE_SECONDS, self.cost / SAVE_SHARE):
            save_state(self.path, model, optimizer, progress)
            self.written = time.monotonic()
            self.cost = self.written - started


def train_epoch(
    model: Jepa,
    optimizer: torch.optim.Optimizer,
    takes: Sequence[TrainingTake],
    config: PjepaConfig,
    progress: Progress,
) -> dict[str, float]:
    """One pass over all takes; returns the epoch's log entry and moves `progress` on."""
    total, tokens, targets = 0.0, 0, torch.zeros(0)
    batches = epoch_batches(
        takes, progress.epoch, config.seed, config.mask_ratio, config.batch_tokens
    )
    for batch in batches:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(
                config.lr, progress.epoch, progress.step,
                config.milestones, config.gamma, config.warmup_steps,
            )  # fmt: skip
        seed = config.seed * 1_000_003 + progress.step
        loss, targets = train_step(model, optimizer, batch.to(config.device), config, seed)
        count = int(batch.target.sum())
        total, tokens = total + loss * count, tokens + count
        progress.step += 1
    progress.epoch += 1
    std, rank = target_std(targets), effective_rank(targets[:RANK_SAMPLE])
    warning = collapse_warning(std, rank)
    if warning and not any(collapse_warning(h["target_std"], h["effective_rank"])
                           for h in progress.history):  # fmt: skip
        say(f"pretrain: epoch {progress.epoch}: {warning}")
    entry = {
        "loss": total / tokens,
        "target_std": std,
        "effective_rank": rank,
        "lr": float(optimizer.param_groups[0]["lr"]),
    }
    progress.history.append(entry)
    return entry


def train_step(
    model: Jepa,
    optimizer: torch.optim.Optimizer,
    batch: Batch,
    config: PjepaConfig,
    step_seed: int = 0,
) -> tuple[float, torch.Tensor]:
    """One optimiser step and one EMA step; returns (loss, targets)."""
    kind = torch.device(config.device).type
    torch.manual_seed(step_seed)  # dropout, the same after a restart
    with torch.autocast(kind, torch.bfloat16, enabled=config.precision == "bf16"):
        loss, targets = model.loss(batch)
    if not torch.isfinite(loss):
        raise InputError(
            "pretrain: the loss is not finite; the last good state is kept: "
            "lower pjepa.lr or pjepa.clip_grad and run again"
        )
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.trained_parameters(), config.clip_grad)
    optimizer.step()
    model.update_teacher(config.ema)
    return float(loss.detach()), targets


def warn_of_style(takes: Sequence[TrainingTake], config: PjepaConfig) -> None:
    """Says so when most variance is constant inside takes and nothing removes it."""
    share = take_share(takes)
    if share > 0.5 and config.input_norm not in ("take_center", "causal_center"):
        say(
            f"pretrain: {100 * share:.0f} % of the variance is constant inside a take (camera, "
            "person, light), which masked prediction loves; try pjepa.input_norm=causal_center"
        )
