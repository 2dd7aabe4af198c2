"""A trained probe fitted on takes of a stream."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from pjepa.config.probe import ProbeCommonConfig
from pjepa.config.trained import TrainedConfig
from pjepa.metrics.runs import label_runs
from pjepa.probes.fit import labelled_take
from pjepa.probes.linear import channel_scale
from pjepa.probes.probe import probe_segments
from pjepa.probes.registry import new_probe
from pjepa.probes.roles import Labels
from pjepa.probes.temporal import Task, TrainedProbe
from pjepa.probes.training import ProbeTake, Tick, Trainer
from pjepa.streams.store import StreamReader


def fit_trained(
    kind: str,
    config: TrainedConfig,
    takes: Sequence[ProbeTake],
    choose: Sequence[ProbeTake],
    task: Task,
    common: ProbeCommonConfig,
    seed: int,
    state: Path | None,
    tick: Tick,
) -> TrainedProbe:
    """Return a trained probe: the epoch that does best on `choose`, or the last without any.

    Resumes from the file `state` if a killed run left it.
    """
    torch.set_num_threads(common.threads)
    most = max(len(label_runs(take.labels).labels) for take in takes)
    probe = new_probe(kind, config, replace(task, most_segments=most), seed)
    mean, std = probe.mean, probe.std
    if common.input_norm == "standardize":
        mean, std = channel_scale([torch.from_numpy(take.features) for take in takes])
    mean, std = mean.to(common.device), std.to(common.device)
    module = probe.module.to(common.device)
    trainer = Trainer(module, takes, choose, mean, std, config, task.background, seed)
    done = trainer.run(state, tick)
    details = {"fit": "trained", "seed": seed, "epoch": done.best_epoch, "epochs": config.epochs}
    details |= {"input_norm": common.input_norm, "history": done.history}
    return replace(probe, mean=mean, std=std, details=details)


def read_probe_takes(reader: StreamReader, labels: Labels, ids: Sequence[str]) -> list[ProbeTake]:
    """Return takes at the stream's own precision, with segments counted over the take."""
    found = []
    for take_id in ids:
        take = reader.read(take_id)
        known = labelled_take(take_id, take.features, labels)
        features = known.features.astype(reader.dtype)
        found.append(ProbeTake(take_id, features, probe_segments(take.segment), known.labels))
    return found
