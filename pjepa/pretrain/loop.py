"""Pretraining: epoch -> step -> log -> checkpoint, each short."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pjepa.model.objective import Batch, Counts, Jepa
from pjepa.model.release import init_selection
from pjepa.nn.fit import Log, learning_rate
from pjepa.nn.prefetch import Prefetch
from pjepa.pretrain.config import PjepaConfig
from pjepa.pretrain.data import TrainingTake, with_segments
from pjepa.pretrain.feed import feed
from pjepa.pretrain.setup import (
    measure_spread,
    measure_statistics,
    new_model,
    optimizer_for,
    runs_teacher_aside,
    warn_of_style,
)
from pjepa.pretrain.team import Team
from pjepa.storage.reading import content_sha256
from pjepa.storage.saver import Saver
from pjepa.storage.writing import atomic_folder, write_json
from pjepa.ui.console import InputError, Meter, say
from pjepa.ui.device import checked_device, tf32
from pjepa.ui.transfer import CopyStream

# Is the representation collapsing? What a practitioner watches beside the loss.

LOW_STD = 0.05  # of a final LayerNorm whose channels have unit spread
LOW_RANK = 2.0
FEWEST = 32  # tokens that tell a collapse from chance


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


# Resume state of pretraining: everything the next step depends on.


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
        """Add one step with its summed losses [2]: Eq. 2 and the neighbour term."""
        self.sums = self.sums.to(losses.device) + losses
        self.targets, self.pairs = self.targets + counts.targets, self.pairs + counts.pairs
        self.step, self.done = self.step + 1, self.done + 1

    def means(self) -> tuple[float, float]:
        """Return the epoch's losses so far; waits for the device to finish its steps."""
        loss, neighbour_loss = self.sums.tolist()
        return loss / self.targets, neighbour_loss / max(1, self.pairs)

    def end_epoch(self, entry: dict[str, float]) -> None:
        """Go on to the next epoch with this one's log entry."""
        self.history.append(entry)
        self.epoch, self.done = self.epoch + 1, 0
        self.sums, self.targets, self.pairs = torch.zeros_like(self.sums), 0, 0


def resumed(
    path: Path,
    snapshots: Path,
    model: Jepa,
    optimizer: torch.optim.Optimizer,
    check: Callable[[], None],
) -> tuple[Progress, Saver]:
    """Return the restored progress, or the beginning, and the saver.

    `check` raises if the state must not be kept. A lost or damaged snapshot cannot be made from a
    later state, so training starts over.
    """
    progress = Progress()

    def state() -> dict[str, Any]:
        check()
        return {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "progress": asdict(progress),
        }

    saver = Saver(path, state)
    saved = saver.saved()
    if saved is not None and (bad := damaged_snapshot(snapshots, saved["progress"]["snapshots"])):
        say(f"pretrain: {bad} of the interrupted run is lost or damaged; starting over")
        saved = None
    if saved is not None:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        vars(progress).update(saved["progress"])
    return progress, saver


def damaged_snapshot(folder: Path, expected: dict[str, str]) -> str | None:
    """Return the first snapshot that is not what the state says, if there is one."""
    for name, digest in expected.items():
        if not (folder / name).is_dir() or content_sha256(folder / name) != digest:
            return f"snapshot {name}"
    return None


RANK_SAMPLE = 2048  # tokens whose effective rank is taken: the first of an epoch's last step
STARVED = 0.05  # share of the time spent waiting for data that is worth a word


class StepResult(NamedTuple):
    """The result of an optimiser step: losses summed over what `counts` counts, and its targets."""

    losses: Tensor  # [2] float64, on the device: Eq. 2, the neighbour term
    counts: Counts
    targets: Tensor


@dataclass
class Trainer:
    """The model with its optimiser and its team, and how fast training goes."""

    model: Jepa
    optimizer: torch.optim.Optimizer
    config: PjepaConfig
    team: Team = field(default_factory=Team)

    def __post_init__(self) -> None:
        self.forward: nn.Module = self.team.wrapped(self.model)
        self.parameters = self.model.trained_parameters()
        aside = runs_teacher_aside(self.config, self.team.size)
        self.aside = ThreadPoolExecutor(1) if aside else None
        self.started, self.tokens, self.waited = time.monotonic(), 0, 0.0
        self.finite: Tensor | None = None  # whether all losses and gradients were, since `check`
        if self.config.compile:
            for block in [*self.model.student.blocks, *self.model.teacher.blocks,
                          *self.model.predictor.blocks]:  # fmt: skip
                block.compile(dynamic=True)

    def step(self, batches: Sequence[Batch], lr: float, seed: int) -> StepResult:
        """Take one optimiser step and one EMA step; return what was summed on the way."""
        if self.config.dropout:
            torch.manual_seed(seed)  # the same after a restart
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        counts = self._counts(batches)
        for parameter in self.parameters:
            parameter.grad = None
        losses, targets = torch.zeros(2, dtype=torch.float64, device=self.config.device), []
        for number, batch in enumerate(batches):
            with self.team.passing(last=number == len(batches) - 1):
                share, found = self._pass(batch, counts)
                losses = losses + share
                targets.append(found)
        self._update(losses)
        self.tokens += sum(len(batch) for batch in batches)
        eq2, neighbour = self.team.summed(losses).unbind()
        told = torch.stack([eq2 * counts.targets, neighbour * counts.pairs])
        return StepResult(told, counts, torch.cat(targets))

    def _counts(self, batches: Sequence[Batch]) -> Counts:
        """Return what the terms of the whole team's step are divided by."""
        targets, pairs = map(sum, zip(*map(self.model.counts, batches), strict=True))
        if self.model.neighbours is None:
            return Counts(int(self.team.total(targets)))
        return Counts(int(self.team.total(targets)), int(self.team.total(pairs)))

    def _pass(self, batch: Batch, counts: Counts) -> tuple[Tensor, Tensor]:
        """Run one batch forward and backward; return its losses [2] and targets.

        Gradients add up over the step.
        """
        config = self.config
        kind = torch.device(config.device).type
        with torch.autocast(kind, torch.bfloat16, enabled=config.precision == "bf16"):
            terms = self.forward(batch.to(config.device), counts, self.aside)
        loss, neighbour = terms.eq2, terms.neighbour
        if neighbour is not None:
            loss = loss + config.neighbour_weight * neighbour
        (loss * self.team.size).backward()  # a team averages gradients; the terms sum them
        eq2 = terms.eq2.detach().double()
        told = torch.zeros_like(eq2) if neighbour is None else neighbour.detach().double()
        return torch.stack([eq2, told]), terms.targets.detach()

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

    def pace(self) -> str:
        """Return tokens per second, and the time lost waiting for them if it matters."""
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
    """Train to the last epoch, resuming from the state that a killed run left in `work`."""
    team = team or Team()
    torch.set_num_threads(config.threads)
    device = checked_device(config.device, config.precision, "pjepa.precision")
    model = new_model(config, takes)
    if config.init_from is None:
        measure_statistics(model.student, takes)
        model.teacher.copy_statistics(model.student)
    takes = with_segments(
        takes, lambda t: model.student.segments(t.features, t.segment, t.take_id, t.recording)
    )
    if model.neighbours is not None:
        measure_spread(model, takes)
    trainer = Trainer(model, optimizer_for(model, config), config, team)
    progress, saver = resumed(
        work / "state.pt", work / "snapshots", model, trainer.optimizer, trainer.check
    )
    if team.lead:
        warn_of_style(takes, config)
        for entry in progress.history:
            log(entry)
    with saver, tf32(device):
        _train(trainer, takes, progress, saver, work / "snapshots", log)
    if team.lead:
        save_snapshot(model, work / "snapshots", progress.epoch)
        if config.init_from is not None:  # `select` passes on which labels chose it
            origin = {"selection_labels": init_selection(config.init_from)}
            write_json(work / "snapshots" / "origin.json", origin)
        with atomic_folder(snapshots) as folder:  # a copy: until all is done the work is whole
            shutil.copytree(work / "snapshots", folder, dirs_exist_ok=True)
    return model


def _train(
    trainer: Trainer,
    takes: Sequence[TrainingTake],
    progress: Progress,
    saver: Saver,
    snapshots: Path,
    log: Log,
) -> None:
    """Run the remaining epochs; the leader logs, keeps snapshots and saves the resume state."""
    config, team = trainer.config, trainer.team
    lane = CopyStream(torch.device(config.device))
    steps = lane.made(feed(takes, config, team, progress.epoch, progress.done))
    with (
        Meter("pretrain", config.epochs, "epoch", quiet=not team.lead) as meter,
        Prefetch(steps) as ready,
    ):
        meter.advance(progress.epoch, resumed=True)

        def note() -> str:
            trainer.check()
            return f"loss {progress.means()[0]:.4f}, {trainer.pace()}"

        for handed in ready:
            batches, last = lane.taken(handed)
            trainer.waited = ready.waited
            targets = train_step(trainer, batches, progress)
            if last:
                entry = _epoch_entry(trainer, team.gathered(targets), progress)
                std = f"target std {entry['target_std']:.3f}"
                meter.advance(1, f"loss {entry['loss']:.4f}, {std}, {trainer.pace()}")
                if team.lead:
                    log(entry)
                    if progress.epoch % config.snapshot_every == 0:
                        name = save_snapshot(trainer.model, snapshots, progress.epoch)
                        progress.snapshots[name] = content_sha256(snapshots / name)
            else:
                meter.advance(0, note)
            if team.lead:
                saver.save_when_due()


def train_step(trainer: Trainer, batches: Sequence[Batch], progress: Progress) -> Tensor:
    """Take one optimiser step, advance `progress`, and return the step's targets [M, d]."""
    config = trainer.config
    lr = learning_rate(
        config.lr, progress.epoch, progress.step,
        config.milestones, config.gamma, config.warmup_steps,
    )  # fmt: skip
    step = trainer.step(batches, lr, config.seed * 1_000_003 + progress.step)
    progress.add(step.losses, step.counts)
    return step.targets


def save_snapshot(model: Jepa, snapshots: Path, epoch: int) -> str:
    """Write the student, and beside it the heads of the neighbour term if they are trained."""
    name = f"{epoch:05d}"
    model.student.save(snapshots / name)
    if model.neighbours is not None and epoch:
        model.neighbours.save(snapshots / name)
    return name


def _epoch_entry(trainer: Trainer, targets: Tensor, progress: Progress) -> dict[str, float]:
    """Return the log entry of a finished epoch; warn once when the targets collapse."""
    trainer.check()
    std, rank = target_std(targets), effective_rank(targets[:RANK_SAMPLE])
    warning = collapse_warning(std, rank) if len(targets) >= FEWEST else None
    warned = any(collapse_warning(h["target_std"], h["effective_rank"]) for h in progress.history)
    if warning and not warned and trainer.team.lead:
        say(f"pretrain: epoch {progress.epoch + 1}: {warning}")
    loss, neighbour_loss = progress.means()
    entry = {"loss": loss}
    if trainer.model.neighbours is not None:
        entry["neighbour_loss"] = neighbour_loss
    entry |= {
        "target_std": std,
        "effective_rank": rank,
        "lr": float(trainer.optimizer.param_groups[0]["lr"]),
    }
    progress.end_epoch(entry)
    return entry
