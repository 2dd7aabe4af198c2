"""Pretraining: epoch -> step -> log -> checkpoint, in this order below."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pjepa.model.objective import Batch, Counts, Jepa
from pjepa.model.release import init_selection
from pjepa.nn.fit import Log, learning_rate
from pjepa.nn.prefetch import Prefetch
from pjepa.pretrain import team
from pjepa.pretrain.config import PjepaConfig
from pjepa.pretrain.data import TrainingTake, segmented
from pjepa.pretrain.exchange import Exchange
from pjepa.pretrain.feed import feed
from pjepa.pretrain.setup import fit_spread, measure, new_model, optimizer_for, warn_of_style
from pjepa.storage.reading import content_sha256
from pjepa.storage.saver import Saver
from pjepa.storage.writing import atomic_folder, write_json
from pjepa.ui.console import InputError, Meter, say
from pjepa.ui.device import checked_device, tf32
from pjepa.ui.transfer import CopyStream

STARVED = 0.05  # share of the time spent waiting for data above which the progress line says so


def pretrain(
    takes: Sequence[TrainingTake], config: PjepaConfig, work: Path, snapshots: Path, log: Log
) -> Jepa:
    """Train to the last epoch, resuming from the state that a killed run left in `work`.

    The leader of a team of processes logs, keeps snapshots and saves the resume state.
    """
    torch.set_num_threads(config.threads)
    device = checked_device(config.device, config.precision, "pjepa.precision")
    statistics = measure(takes)
    model = new_model(config, takes, statistics)
    takes = segmented(takes, model.student)
    if model.neighbours is not None:
        fit_spread(model.neighbours, model.student, takes)
    exchange = Exchange(takes, statistics.std, config) if config.exchange else None
    trainer = Trainer(model, config)
    saver = resumed(trainer, work)
    if team.leads():
        warn_of_style(statistics, config)
        for entry in trainer.progress.history:
            log(entry)
    with tf32(device):
        train(trainer, takes, exchange, saver, work / "snapshots", log)
    if team.leads():
        publish(trainer, work / "snapshots", snapshots)
    return model


# Epochs.


def train(
    trainer: Trainer,
    takes: Sequence[TrainingTake],
    exchange: Exchange | None,
    saver: Saver,
    snapshots: Path,
    log: Log,
) -> None:
    """Run the remaining epochs; copies to the device run beside the steps."""
    config, progress = trainer.config, trainer.progress
    copies = CopyStream(torch.device(config.device))
    steps = copies.prepare(feed(takes, config, exchange, progress.epoch, progress.done))
    with (
        Meter("pretrain", config.epochs, "epoch", quiet=not team.leads()) as meter,
        Prefetch(steps) as ready,
    ):
        meter.advance(progress.epoch, resumed=True)
        for item in ready:
            batches, ends_epoch = copies.receive(item)
            trainer.waited = ready.waited
            targets = trainer.step(batches)
            if not ends_epoch:
                meter.advance(0, trainer.note)
            else:
                entry = end_epoch(trainer, team.gathered(targets))
                note = f"loss {entry['loss']:.4f}, target std {entry['target_std']:.3f}"
                meter.advance(1, f"{note}, {trainer.pace()}")
                if team.leads():
                    log(entry)
                    if progress.epoch % config.snapshot_every == 0:
                        name = save_snapshot(trainer.model, snapshots, progress.epoch)
                        progress.snapshots[name] = content_sha256(snapshots / name)
            if team.leads():
                saver.save_when_due()


# A step.


@dataclass
class Progress:
    """Where training stands; `history` is replayed into the log after a restart."""

    epoch: int = 0
    step: int = 0  # over the whole run
    done: int = 0  # steps of this epoch, and what they summed up
    sums: Tensor = field(default_factory=lambda: torch.zeros(2, dtype=torch.float64))  # losses
    targets: int = 0
    pairs: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    snapshots: dict[str, str] = field(default_factory=dict)  # name: content hash

    def add(self, losses: Tensor, counts: Counts) -> None:
        """Add one step with its mean losses [2]: Eq. 2 and the neighbour term."""
        eq2, neighbour = losses.unbind()
        self.sums = self.sums.to(losses.device) + torch.stack(
            [eq2 * counts.targets, neighbour * counts.pairs]
        )
        self.targets, self.pairs = self.targets + counts.targets, self.pairs + counts.pairs
        self.step, self.done = self.step + 1, self.done + 1

    def means(self) -> tuple[float, float]:
        """Return the epoch's losses so far; waits for the device to finish its steps."""
        loss, neighbour_loss = self.sums.tolist()
        return loss / self.targets, neighbour_loss / max(1, self.pairs)


class Trainer:
    """The model, its optimiser, where training stands and how fast it goes."""

    def __init__(self, model: Jepa, config: PjepaConfig) -> None:
        self.model, self.config, self.progress = model, config, Progress()
        self.optimizer = optimizer_for(model, config)
        self.parameters = model.trained_parameters()
        self.forward = team.wrapped(model)
        self.started, self.tokens, self.waited = time.monotonic(), 0, 0.0
        self.finite: Tensor | None = None  # whether all losses and gradients were, since `check`
        plain = config.precision == "fp32" and not config.compile
        spare = plain and config.has_spare_core(team.size())
        self.teacher_thread = ThreadPoolExecutor(1) if spare else None
        if config.compile:
            for stack in (model.student.blocks, model.teacher.blocks, model.predictor.blocks):
                for block in stack:
                    block.compile(dynamic=True)

    def step(self, batches: Sequence[Batch]) -> Tensor:
        """Take one optimiser step and one EMA step; return the targets [M, d] of its passes."""
        config, progress = self.config, self.progress
        if config.dropout:  # the same after a restart
            torch.manual_seed(config.seed * 1_000_003 + progress.step)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(
                config.lr, progress.epoch, progress.step,
                config.milestones, config.gamma, config.warmup_steps,
            )  # fmt: skip
        for parameter in self.parameters:
            parameter.grad = None
        counts = self._counts(batches)
        losses, targets = torch.zeros(2, dtype=torch.float64, device=config.device), []
        for number, batch in enumerate(batches, start=1):
            with team.gradient_sync(self.forward, last=number == len(batches)):
                pass_losses, pass_targets = self._pass(batch, counts)
            losses = losses + pass_losses
            targets.append(pass_targets)
        self._update(losses)
        self.tokens += sum(map(len, batches))
        progress.add(team.summed(losses), counts)
        return torch.cat(targets)

    def _counts(self, batches: Sequence[Batch]) -> Counts:
        """Return what the terms of the whole team's step are divided by."""
        counts = [sum(each) for each in zip(*map(self.model.counts, batches), strict=True)]
        if team.size() > 1:
            counts = team.summed(torch.tensor(counts, device=self.config.device)).tolist()
        return Counts(*counts)

    def _pass(self, batch: Batch, counts: Counts) -> tuple[Tensor, Tensor]:
        """Run one batch forward and backward; return its losses [2] and its targets.

        Gradients add up over the step.
        """
        config = self.config
        kind = torch.device(config.device).type
        with torch.autocast(kind, torch.bfloat16, enabled=config.precision == "bf16"):
            terms = self.forward(batch.to(config.device), counts, self.teacher_thread)
        neighbour = torch.zeros_like(terms.eq2) if terms.neighbour is None else terms.neighbour
        loss = terms.eq2 + config.neighbour_weight * neighbour
        (loss * team.size()).backward()  # a team averages gradients; the terms sum them
        losses = torch.stack([terms.eq2.detach().double(), neighbour.detach().double()])
        return losses, terms.targets.detach()

    def _update(self, losses: Tensor) -> None:
        """Apply clipped AdamW, then update the teacher; on the CPU a bad step changes nothing.

        A GPU would have to be waited for: `check` asks it before anything is kept.
        """
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        finite = torch.isfinite(norm) & torch.isfinite(losses).all()  # |nan| has no gradient
        self.finite = finite if self.finite is None else self.finite & finite
        if norm.device.type == "cpu":
            self.check()
        limit = self.config.clip_grad
        if norm.device.type != "cpu" or norm + 1e-6 > limit:  # else all is multiplied by 1
            torch.nn.utils.clip_grads_with_norm_(self.parameters, limit, norm)
        self.optimizer.step()
        self.model.update_teacher(self.config.ema)

    def check(self) -> None:
        """Raise if a loss or gradient since the last check was not finite."""
        if self.finite is not None and not self.finite:
            raise InputError(
                "pretrain: the loss or its gradient is not finite; the last good state is kept: "
                "lower pjepa.lr or pjepa.clip_grad and run again"
            )
        self.finite = None

    def note(self) -> str:
        """Return the epoch's loss so far and the pace."""
        self.check()
        return f"loss {self.progress.means()[0]:.4f}, {self.pace()}"

    def pace(self) -> str:
        """Return tokens per second, and the time lost waiting for them if it matters."""
        elapsed = max(time.monotonic() - self.started, 1e-9)
        text = f"{self.tokens / elapsed:.0f} tokens/s"
        share = self.waited / elapsed
        return text + (f", {100 * share:.0f} % waiting for data" if share > STARVED else "")

    def state(self) -> dict[str, Any]:
        """Return everything the next step depends on; raise if it must not be kept."""
        self.check()
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "progress": asdict(self.progress),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        vars(self.progress).update(state["progress"])


# The log: losses, and whether the representation collapses, which a loss alone does not tell.

LOW_STD = 0.05  # of a final LayerNorm whose channels have unit spread
LOW_RANK = 2.0
LEAST_TARGETS = 32  # that tell a collapse from chance
RANK_SAMPLE = 2048  # targets whose effective rank is taken: the first of an epoch's last step


def end_epoch(trainer: Trainer, targets: Tensor) -> dict[str, float]:
    """End the epoch; return its log entry. Warns once when the last step's targets collapse."""
    trainer.check()
    progress = trainer.progress
    std, rank = target_std(targets), effective_rank(targets[:RANK_SAMPLE])
    warning = collapse_warning(std, rank) if len(targets) >= LEAST_TARGETS else None
    warned = any(collapse_warning(h["target_std"], h["effective_rank"]) for h in progress.history)
    if warning and not warned and team.leads():
        say(f"pretrain: epoch {progress.epoch + 1}: {warning}")
    loss, neighbour_loss = progress.means()
    entry = {"loss": loss}
    if trainer.model.neighbours is not None:
        entry["neighbour_loss"] = neighbour_loss
    lr = float(trainer.optimizer.param_groups[0]["lr"])
    entry |= {"target_std": std, "effective_rank": rank, "lr": lr}
    progress.history.append(entry)
    progress.epoch, progress.done = progress.epoch + 1, 0
    progress.sums, progress.targets, progress.pairs = torch.zeros_like(progress.sums), 0, 0
    return entry


def target_std(targets: Tensor) -> float:
    """Return the spread of targets over tokens, mean over channels; 0: all tokens alike."""
    return 0.0 if len(targets) < 2 else float(targets.float().std(dim=0).mean())


def effective_rank(targets: Tensor) -> float:
    """Return exp(entropy of the normalised singular values): directions really used.

    They are the roots of the Gram matrix's eigenvalues, several times cheaper on long tables.
    """
    centred = targets.double() - targets.double().mean(dim=0)
    rows, width = centred.shape
    gram = centred.T @ centred if rows >= width else centred @ centred.T
    values = torch.linalg.eigvalsh(gram).clamp_min(0.0).sqrt()
    share = values / values.sum().clamp_min(1e-12)
    return float(torch.exp(-(share * share.clamp_min(1e-12).log()).sum()))


def collapse_warning(std: float, rank: float) -> str | None:
    """Return a warning when the targets have collapsed, else None."""
    if std >= LOW_STD and rank >= LOW_RANK:
        return None
    return (
        f"the targets are collapsing (std {std:.3f}, effective rank {rank:.1f}): "
        "lower pjepa.lr, raise pjepa.ema or set pjepa.target_norm=layer"
    )


# Checkpoints: the state to resume from, and snapshots.


def resumed(trainer: Trainer, work: Path) -> Saver:
    """Restore what an interrupted run left in `work`, if anything; return the saver of states.

    A lost or damaged snapshot cannot be made from a later state, so training starts over.
    """
    saver = Saver(work / "state.pt", trainer.state)
    state = saver.saved()
    if state is None:
        return saver
    for name, digest in state["progress"]["snapshots"].items():
        folder = work / "snapshots" / name
        if not folder.is_dir() or content_sha256(folder) != digest:
            say(
                f"pretrain: snapshot {name} of the interrupted run is lost or damaged; "
                "starting over"
            )
            return saver
    trainer.restore(state)
    return saver


def save_snapshot(model: Jepa, snapshots: Path, epoch: int) -> str:
    """Write the student, and beside it the heads of the neighbour term if they are trained."""
    name = f"{epoch:05d}"
    model.student.save(snapshots / name)
    if model.neighbours is not None and epoch:
        model.neighbours.save(snapshots / name)
    return name


def publish(trainer: Trainer, work: Path, snapshots: Path) -> None:
    """Add the last snapshot and copy all of them: until that is done the work is whole."""
    save_snapshot(trainer.model, work, trainer.progress.epoch)
    if trainer.config.init_from is not None:  # `select` passes on which labels chose it
        origin = {"selection_labels": init_selection(trainer.config.init_from)}
        write_json(work / "origin.json", origin)
    with atomic_folder(snapshots) as folder:
        shutil.copytree(work, folder, dirs_exist_ok=True)
