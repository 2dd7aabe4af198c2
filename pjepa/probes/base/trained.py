"""Trained probes: how a module is built, fitted on the takes of a cell, and loaded again."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from pjepa.core.files import read_object
from pjepa.metrics.runs import label_runs
from pjepa.nn.scale import channel_scale
from pjepa.probes.base.config import ProbeCommonConfig, TrainedConfig
from pjepa.probes.base.data import CellData, Run, TakeSource
from pjepa.probes.base.probe import probe_segments
from pjepa.probes.base.registry import ProbeKind
from pjepa.probes.base.roles import Labels
from pjepa.probes.base.scoring import labelled_take, score_probe
from pjepa.probes.base.temporal import Task, TemporalProbe, TrainedProbe
from pjepa.probes.base.training import ProbeTake, ProbeTrainer, Tick
from pjepa.streams.store import StreamReader
from pjepa.ui.errors import InputError
from pjepa.ui.progress import Meter, say

TRAINED = "trained"
Takes = Sequence[ProbeTake]


@dataclass(frozen=True)
class TrainedKind:
    """A trained probe: its section, its module, and how the section is adapted to a task."""

    name: str
    config: type[TrainedConfig]
    build: Callable[[Any, Task], TemporalProbe]
    adapt: Callable[[Any, Task], Any] = lambda config, task: config

    @property
    def probe_kind(self) -> ProbeKind:
        """Return this kind as the registry wants it."""
        return ProbeKind(self.fits, self.load)

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
        probe = self.new(self.config.model_validate(config["settings"]), task, 0)
        tensors = load_file(folder / "model.safetensors")
        mean, std = tensors.pop("mean"), tensors.pop("std")
        state = {name.removeprefix("module."): value for name, value in tensors.items()}
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
                fitted = Fitting(self, config, task, cell.common).on(
                    read_probe_takes(reader, cell.labels, cell.roles.fit),
                    read_probe_takes(reader, cell.labels, cell.roles.holdout),
                )
                for seed in cell.common.seeds:
                    state = None if work is None else work / f"{variant}-{seed}.pt"
                    probe = fitted(seed, state, meter.advance)
                    run = Run(
                        TRAINED, variant, seed, score_probe(probe, TakeSource(reader), cell.targets)
                    )
                    _say_run(cell, run)
                    yield run


@dataclass(frozen=True)
class Fitting:
    """One kind of probe with its settings, ready to be fitted."""

    kind: TrainedKind
    config: TrainedConfig
    task: Task
    common: ProbeCommonConfig

    def on(self, takes: Takes, choose: Takes) -> Callable[[int, Path | None, Tick], TrainedProbe]:
        """Return `fit(seed, state, tick)`: the epoch that does best on `choose`, else the last.

        A fit resumes from the file `state` if an interrupted run left it.
        """

        def fit(seed: int, state: Path | None, tick: Tick) -> TrainedProbe:
            probe = self._placed(self._new(takes, seed), takes)
            trainer = ProbeTrainer(
                probe.module, takes, choose, probe.mean, probe.std, self.config,
                self.task.background, seed,
            )  # fmt: skip
            done = trainer.run(state, tick)
            return replace(
                probe,
                details={
                    "fit": TRAINED,
                    "seed": seed,
                    "epoch": done.best_epoch,
                    "epochs": self.config.epochs,
                    "input_norm": self.common.input_norm,
                    "history": done.history,
                },
            )

        return fit

    def _new(self, takes: Takes, seed: int) -> TrainedProbe:
        most = max(len(label_runs(take.labels).labels) for take in takes)
        return self.kind.new(self.config, replace(self.task, most_segments=most), seed)

    def _placed(self, probe: TrainedProbe, takes: Takes) -> TrainedProbe:
        """Return the probe on its device, with the input scaling of the fitted takes."""
        torch.set_num_threads(self.common.threads)
        mean, std = probe.mean, probe.std
        if self.common.input_norm == "standardize":
            mean, std = channel_scale([torch.from_numpy(take.features) for take in takes])
        device = self.common.device
        probe.module.to(device)
        return replace(probe, mean=mean.to(device), std=std.to(device))


def read_probe_takes(reader: StreamReader, labels: Labels, ids: Sequence[str]) -> list[ProbeTake]:
    """Return takes at the stream's own precision, with segments counted over the take."""
    found = []
    for take_id in ids:
        take = reader.read(take_id)
        known = labelled_take(take_id, take.features, labels)
        features = known.features.astype(reader.dtype)
        found.append(ProbeTake(take_id, features, probe_segments(take.segment), known.labels))
    return found


def _say_run(cell: CellData, run: Run) -> None:
    details = run.result.probe.details
    say(
        f"{cell.name}, variant {run.variant + 1}/{len(cell.readers)}, seed {run.seed}: "
        f"acc {run.result.metrics()['acc']:.1f} on {cell.roles.split} "
        f"(epoch {details['epoch']} of {details['epochs']}, by {cell.common.select_on})"
    )
