"""Trained probes: how a module is built, fitted on the takes of a cell, and loaded again."""

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor, nn

from pjepa.core.runs import Span, runs
from pjepa.core.section import first_fault
from pjepa.metrics.segmentation import combined_score, segmentation_scores
from pjepa.nn.fit import (
    Adam,
    AdamW,
    Epochs,
    Tick,
    channel_scale,
    cosine_rate,
    learning_rate,
    train_to_best,
)
from pjepa.probes.base.config import ProbeCommonConfig, TrainedConfig
from pjepa.probes.base.registry import ProbeKind
from pjepa.probes.base.scoring import (
    CellData,
    Features,
    Labels,
    Run,
    SegmentIds,
    Sight,
    labelled_take,
    probe_segments,
    score_probe,
    take_reader,
)
from pjepa.storage.reading import read_object, read_tensors
from pjepa.storage.saver import Saver
from pjepa.storage.writing import write_json, write_tensors
from pjepa.streams.stream import StreamReader
from pjepa.ui.console import InputError, Meter, say

# Trained probes: a module over one take, and the same module fitted and stored.


class TemporalProbe(nn.Module):
    """The base of every trained probe."""

    sight = Sight("take")

    def loss(self, outputs: Any, labels: Tensor) -> Tensor:
        """Return the training loss of one take for labels [T]; -1 is unknown."""
        raise NotImplementedError

    def predict(self, features: Tensor, segments: Tensor) -> Tensor:
        """Return class probabilities [T, C]."""
        raise NotImplementedError

    def predict_newest(
        self, features: Tensor, segments: Tensor, spans: Sequence[Span]
    ) -> Iterator[Tensor]:
        """Yield the probabilities of tokens start..end, predicted from the prefix up to end."""
        for start, end in spans:
            yield self.predict(features[:end], segments[:end])[start:]


@dataclass(frozen=True)
class Task:
    """The task that a module is built for."""

    width: int
    classes: int
    background: int | None = None
    most_segments: int = 1  # runs of equal label in the fitted take that has most


@dataclass(frozen=True)
class TrainedProbe:
    """A fitted module with its input scaling; `details` says how it was fitted (JSON values)."""

    kind: str
    task: Task
    settings: dict[str, Any]  # the probe's section, as the module was built
    module: TemporalProbe
    mean: Tensor  # [D]
    std: Tensor  # [D]
    details: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.module.eval()

    @property
    def sight(self) -> Sight:
        return self.module.sight

    @torch.no_grad()
    def predict(self, features: Features, segments: SegmentIds | None = None) -> Features:
        """Return the class probabilities [T, C] of features [T, D]."""
        return _array(self.module.predict(*self._inputs(features, segments)))

    @torch.no_grad()
    def predict_newest(
        self, features: Features, segments: SegmentIds, spans: Sequence[Span]
    ) -> Iterator[Features]:
        """Yield the probabilities of each span, predicted from the prefix that ends with it."""
        for rows in self.module.predict_newest(*self._inputs(features, segments), spans):
            yield _array(rows)

    def save(self, folder: Path) -> None:
        """Write `model.safetensors` and `config.json`."""
        state = {f"module.{name}": value for name, value in self.module.state_dict().items()}
        tensors = {**state, "mean": self.mean, "std": self.std}
        write_tensors(folder / "model.safetensors", tensors)
        config = {"kind": self.kind, **asdict(self.task), "settings": self.settings}
        write_json(folder / "config.json", {**config, "fit": self.details})

    def _inputs(self, features: Features, segments: SegmentIds | None) -> tuple[Tensor, Tensor]:
        if segments is None and self.sight.to == "segment":
            raise InputError(
                f"{self.kind}: needs the segments of the take; give them, or train one that "
                "counts blocks (probe.ltcausal.block)"
            )
        ids = np.zeros(len(features), np.int64) if segments is None else segments
        device = self.mean.device
        x = torch.from_numpy(np.ascontiguousarray(features, np.float32)).to(device)
        return (x - self.mean) / self.std, torch.from_numpy(np.asarray(ids, np.int64)).to(device)


def _array(x: Tensor) -> Features:
    return x.float().cpu().numpy()


# Training of a probe: epoch -> choice -> state, each short; resumed to the same bytes.

ORDER, STEP = 0, 1  # what a random stream is for


@dataclass(frozen=True)
class ProbeTake:
    """One take in memory at the stream's own precision."""

    take_id: str
    features: NDArray[Any]  # [T, D] float16 or float32
    segments: NDArray[np.int64]  # [T] 0, 1, 2 ... along the take
    labels: NDArray[np.int64]  # [T], -1 unknown

    def tensors(self, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return scaled features, segments and labels on the device of `mean`."""
        x = torch.from_numpy(self.features).to(mean.device).float()
        ids, labels = (torch.from_numpy(v).to(mean.device) for v in (self.segments, self.labels))
        return (x - mean) / std, ids, labels


@dataclass
class ProbeTrainer:
    """One training: the module, what it is shown, and what the best epoch is chosen on."""

    model: TemporalProbe
    takes: Sequence[ProbeTake]
    choose: Sequence[ProbeTake]  # empty: the last epoch is kept
    mean: Tensor
    std: Tensor
    config: TrainedConfig
    background: int | None
    seed: int

    def __post_init__(self) -> None:
        kind = {"adamw": AdamW, "adam": Adam}[self.config.optimizer]
        self.optimizer: torch.optim.Optimizer = kind(
            self.model.parameters(),
            lr=self.config.lr,
            weight_decay=self.config.weight_decay,
            fused=True,  # a probe has many small tensors: one call for all of them
        )

    def finished(self, state: Epochs) -> bool:
        """Return whether all epochs are done."""
        return state.epoch >= self.config.epochs

    def epoch(self, state: Epochs, saver: Saver) -> None:
        """Pass once over all takes, then keep the module if it does best so far."""
        for group in self.optimizer.param_groups:
            group["lr"] = epoch_rate(self.config, state.epoch)
        order = np.random.default_rng([self.seed, ORDER, state.epoch]).permutation(len(self.takes))
        size, losses = self.config.batch_takes, []
        self.model.train()
        for first in range(0, len(order), size):
            batch = [self.takes[number] for number in order[first : first + size]]
            losses.append(self.step(batch, state.epoch))
        self.model.eval()
        score = self.score() if self.choose else None
        entry = {"loss": float(np.mean(losses))}
        state.close(self.model, score, entry if score is None else {**entry, "score": score})

    def step(self, batch: Sequence[ProbeTake], epoch: int) -> float:
        """Take one optimiser step on the mean loss of a few takes; return that loss."""
        self.optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for take in batch:
            torch.manual_seed(take_seed(self.seed, epoch, take.take_id))
            features, segments, labels = take.tensors(self.mean, self.std)
            loss = self.model.loss(self.model(features, segments), labels) / len(batch)
            if not torch.isfinite(loss):
                raise InputError(
                    f"take {take.take_id}: the probe's loss is not finite in epoch {epoch + 1}; "
                    "lower its lr, or set probe.common.input_norm=standardize"
                )
            loss.backward()
            total += float(loss.detach())
        if self.config.clip_grad:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_grad)
        self.optimizer.step()
        return total

    @torch.no_grad()
    def score(self) -> float:
        """Return the combined score on the takes that choices are made on."""
        guesses = []
        for take in self.choose:
            features, segments, _ = take.tensors(self.mean, self.std)
            guesses.append(self.model.predict(features, segments).argmax(1).cpu().numpy())
        truths = [take.labels for take in self.choose]
        return combined_score(segmentation_scores(truths, guesses, self.background))

    def note(self, state: Epochs) -> str:
        """Return what the progress line shows beside the epoch."""
        text = f"loss {state.history[-1]['loss']:.3f}"
        if self.choose:
            text += f", best {state.best_score:.1f} at epoch {state.best_epoch}"
        return text


def epoch_rate(config: TrainedConfig, epoch: int) -> float:
    """Return the learning rate of an epoch, counted from 0."""
    if config.schedule == "step":
        return learning_rate(config.lr, epoch, 0, config.milestones, config.gamma, 0)
    length = max(config.epochs - config.constant_epochs, 1)
    done = max(epoch - config.constant_epochs, 0)
    return cosine_rate(config.lr, config.lr_min, done, length)


def take_seed(seed: int, epoch: int, take_id: str) -> int:
    """Return the seed of everything random while one take is shown in one epoch."""
    key = [seed, STEP, epoch, zlib.crc32(take_id.encode())]
    return int(np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> np.uint64(1))


TRAINED = "trained"


@dataclass(frozen=True)
class TrainedKind(ProbeKind):
    """A trained probe: its section, its module, and how the section is adapted to a task."""

    name: str
    config: type[TrainedConfig]
    build: Callable[[Any, Task], TemporalProbe]
    adapt: Callable[[Any, Task], Any] = lambda config, task: config

    def new(self, config: TrainedConfig, task: Task, seed: int) -> TrainedProbe:
        """Return an untrained probe; the seed fixes its first weights."""
        adapted = self.adapt(config, task)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self.build(adapted, task)
        unscaled = torch.zeros(task.width), torch.ones(task.width)
        return TrainedProbe(self.name, task, adapted.model_dump(mode="json"), module, *unscaled)

    def load(self, folder: Path) -> TrainedProbe:
        """Return the probe that `TrainedProbe.save` wrote."""
        config = read_object(folder / "config.json", "settings", "fit", *Task.__dataclass_fields__)
        task = Task(**{name: config[name] for name in Task.__dataclass_fields__})
        try:
            settings = self.config.model_validate(config["settings"])
        except ValidationError as error:
            fault = first_fault(error, self.config)
            raise InputError(f"{folder}/config.json: {fault}; train the probe again") from None
        probe = self.new(settings, task, 0)
        tensors = read_tensors(folder / "model.safetensors")
        mean, std = tensors.pop("mean"), tensors.pop("std")
        state = {  # of an earlier version, with the network one level down
            name.removeprefix("module.").removeprefix("model."): value
            for name, value in tensors.items()
        }
        try:
            probe.module.load_state_dict(state)
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(
                f"{folder}: model.safetensors does not fit config.json ({reason})"
            ) from None
        return replace(probe, mean=mean, std=std, details=config["fit"])

    def fits(self, cell: CellData, config: TrainedConfig, work: Path | None) -> Iterator[Run]:
        """Yield one training per variant and seed, resuming those left unfinished in `work`."""
        if cell.common.select_on != "last" and not cell.roles.holdout:
            raise InputError(
                f"{cell.name}: no labelled held-out train take to choose the epoch on; "
                "set probe.common.select_on=last"
            )
        total = config.epochs * len(cell.readers) * len(cell.common.seeds)
        task = Task(cell.readers[0].info.width, len(cell.classes.names), cell.classes.background)
        with Meter(cell.name, total, "epoch") as meter:
            for variant, reader in enumerate(cell.readers):
                fitting = Fitting(
                    self,
                    config,
                    task,
                    cell.common,
                    read_probe_takes(reader, cell.labels, cell.roles.fit),
                    read_probe_takes(reader, cell.labels, cell.roles.holdout),
                )
                for seed in cell.common.seeds:
                    state = None if work is None else work / f"{variant}-{seed}.pt"
                    probe = fitting.fit(seed, state, meter.advance)
                    result = score_probe(probe, take_reader(reader), cell.targets)
                    run = Run(TRAINED, variant, seed, result)
                    _say_run(cell, run)
                    yield run


@dataclass(frozen=True)
class Fitting:
    """One kind of probe with its settings and takes, ready to be fitted with any seed."""

    kind: TrainedKind
    config: TrainedConfig
    task: Task
    common: ProbeCommonConfig
    takes: Sequence[ProbeTake]
    choose: Sequence[ProbeTake]

    @cached_property
    def scale(self) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation [D] that inputs are scaled by."""
        if self.common.input_norm == "none":
            return torch.zeros(self.task.width), torch.ones(self.task.width)
        return channel_scale([torch.from_numpy(take.features) for take in self.takes])

    def fit(self, seed: int, state: Path | None, tick: Tick) -> TrainedProbe:
        """Return the probe at the epoch that does best on `choose`, else at the last.

        Resumes from the file `state` if an interrupted run left it.
        """
        torch.set_num_threads(self.common.threads)
        most = max(len(runs(take.labels)[0]) for take in self.takes)
        probe = self.kind.new(self.config, replace(self.task, most_segments=most), seed)
        mean, std = (value.to(self.common.device) for value in self.scale)
        trainer = ProbeTrainer(
            probe.module.to(self.common.device), self.takes, self.choose, mean, std, self.config,
            self.task.background, seed,
        )  # fmt: skip
        done = train_to_best(trainer, Epochs(), state, tick)
        details = {
            "fit": TRAINED,
            "seed": seed,
            "epoch": done.best_epoch,
            "epochs": self.config.epochs,
            "input_norm": self.common.input_norm,
            "history": done.history,
        }
        return replace(probe, mean=mean, std=std, details=details)


def read_probe_takes(reader: StreamReader, labels: Labels, ids: Sequence[str]) -> list[ProbeTake]:
    """Return takes at the stream's own precision, with segments counted over the take."""
    takes = []
    for take_id in ids:
        take = reader.read(take_id, as_stored=True)
        known = labelled_take(take_id, take.features, labels).labels
        takes.append(ProbeTake(take_id, take.features, probe_segments(take.segment), known))
    return takes


def _say_run(cell: CellData, run: Run) -> None:
    details = run.result.probe.details
    say(
        f"{cell.name}, variant {run.variant + 1}/{len(cell.readers)}, seed {run.seed}: "
        f"acc {run.result.metrics()['acc']:.1f} on {cell.roles.split} "
        f"(epoch {details['epoch']} of {details['epochs']}, by {cell.common.select_on})"
    )
