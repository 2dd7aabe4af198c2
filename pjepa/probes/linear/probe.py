"""The linear probe: one affine map per token (paper Sec. 3.3), fitted in two ways.

`converged` measures the representation: standardised, to the optimum, L2 chosen on held-out train
groups. `paper` repeats the supplement's recipe, which stops far from the optimum on small data.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from pjepa.core.runs import Span
from pjepa.nn.fit import AdamW, channel_scale
from pjepa.probes.base.config import ProbeCommonConfig
from pjepa.probes.base.registry import ProbeKind
from pjepa.probes.base.scoring import (
    CellData,
    Features,
    FitResult,
    LabelledTake,
    Labels,
    ReadTake,
    Run,
    SegmentIds,
    Sight,
    Targets,
    labelled_take,
    score_probe,
    take_reader,
    take_roles,
)
from pjepa.probes.linear.config import LinearConfig, PaperFitConfig
from pjepa.probes.linear.logistic import LogisticModel, logistic_path
from pjepa.storage.reading import read_object, read_tensors
from pjepa.storage.writing import write_json, write_tensors
from pjepa.streams.stream import StreamReader
from pjepa.ui.console import InputError, say

LOG_SCALES = (-5.0, 5.0)  # logarithms of the factors of logits that are tried


@dataclass(frozen=True)
class LinearProbe:
    """The probe softmax(W (x - mean) / std + b); `details` says how it was fitted (JSON values)."""

    weight: Tensor  # [C, D] float32
    bias: Tensor  # [C], -inf for classes that never occurred in training
    mean: Tensor  # [D]
    std: Tensor  # [D]
    details: dict[str, Any] = field(default_factory=dict)
    sight: ClassVar[Sight] = Sight("token")

    def logits(self, features: Features) -> Tensor:
        """Return the class logits [T, C] of features [T, D]."""
        x = torch.from_numpy(np.ascontiguousarray(features, np.float32)).to(self.mean.device)
        return torch.addmm(self.bias, (x - self.mean) / self.std, self.weight.T)

    def predict(self, features: Features, segments: SegmentIds | None = None) -> Features:
        """Return the class probabilities [T, C] of features [T, D]; segments are not looked at."""
        return torch.softmax(self.logits(features), 1).cpu().numpy()

    def predict_newest(
        self, features: Features, segments: SegmentIds, spans: Sequence[Span]
    ) -> Iterator[Features]:
        """Yield the probabilities of tokens start..end, predicted from the prefix up to end."""
        for start, end in spans:
            yield self.predict(features[start:end])

    def save(self, folder: Path) -> None:
        """Write `model.safetensors` and `config.json`."""
        names = ("weight", "bias", "mean", "std")
        write_tensors(folder / "model.safetensors", {name: getattr(self, name) for name in names})
        classes, width = self.weight.shape
        shape = {"kind": "linear", "width": width, "classes": classes}
        write_json(folder / "config.json", {**self.details, **shape})

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Return the probe that `save` wrote."""
        details = read_object(folder / "config.json", "classes", "width")
        if details.pop("kind", None) != "linear":
            raise InputError(f"{folder}: not a linear probe")
        tensors = read_tensors(folder / "model.safetensors")
        expected = (details.pop("classes"), details.pop("width"))
        if tuple(tensors["weight"].shape) != expected:
            raise InputError(f"{folder}: weight is not the {expected} of its config.json")
        return cls(**tensors, details=details)


def fit_converged(
    takes: Sequence[LabelledTake],
    holdout: Sequence[LabelledTake],
    classes: int,
    config: LinearConfig,
    device: str = "cpu",
) -> LinearProbe:
    """Return the optimum whose L2 does best on `holdout`, which is used for nothing else.

    Few groups are held out, often two or three people: their accuracy jumps from one strength to
    the next. Their cross-entropy falls and then rises, but punishes a weak L2 for being too sure,
    which changes no prediction; so it is taken at the best temperature. Ties go to the stronger
    L2; weaker ones are not tried after two rises in a row. The device holds the tokens once and
    makes the predictions.
    """
    if len(config.l2) > 1 and not any((take.labels >= 0).any() for take in holdout):
        raise InputError(
            "no labelled held-out train take to choose probe.linear.l2 on; give one l2"
        )
    features, labels = _known_tokens(takes, device)
    mean, std = channel_scale(features.split(4096))
    seen, target = torch.unique(labels, return_inverse=True)
    features.sub_(mean).div_(std)
    losses: dict[str, float] = {}
    best, least, rises = None, float("inf"), 0
    models = logistic_path(features, target, config.l2, config.tolerance, config.max_iterations)
    for model in models:
        probe = _whole_probe(model, seen, classes, mean, std)
        loss = losses[f"{model.l2:g}"] = calibrated_loss(probe, holdout)
        rises = rises + 1 if loss > least else 0
        if rises == 2:
            break
        if loss < least:
            best, least = probe, loss
    assert best is not None
    return replace(best, details={**best.details, "holdout_loss": losses})


def fit_paper(
    takes: Sequence[LabelledTake],
    classes: int,
    config: PaperFitConfig,
    seed: int,
    device: str = "cpu",
) -> LinearProbe:
    """Return the last epoch of the supplement's recipe (Table "Linear probe configuration").

    Features as they are, AdamW, one take per step in an order drawn anew each epoch.
    """
    batches = [_known_tokens([take], device) for take in takes if (take.labels >= 0).any()]
    if not batches:
        raise InputError("no labelled train token to fit a probe on")
    width = batches[0][0].shape[1]
    random = torch.Generator().manual_seed(seed)
    span = width**-0.5  # torch.nn.Linear's own initialisation
    weight = ((2 * torch.rand(classes, width, generator=random) - 1) * span).to(device)
    bias = ((2 * torch.rand(classes, generator=random) - 1) * span).to(device)
    weight, bias = weight.requires_grad_(), bias.requires_grad_()
    optimizer = AdamW([weight, bias], lr=config.lr, weight_decay=config.weight_decay)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, config.milestones, config.gamma)
    for _ in range(config.epochs):
        for index in torch.randperm(len(batches), generator=random).tolist():
            features, labels = batches[index]
            optimizer.zero_grad()
            cross_entropy(torch.addmm(bias, features, weight.T), labels).backward()
            optimizer.step()
        schedule.step()
    seen = torch.unique(torch.cat([labels for _, labels in batches]))
    final = torch.full_like(bias.detach(), -torch.inf)
    final[seen] = bias.detach()[seen]
    details = {"fit": "paper", "epochs": config.epochs, "seed": seed}
    mean, std = weight.new_zeros(width), weight.new_ones(width)
    return LinearProbe(weight.detach(), final, mean, std, details)


def calibrated_loss(probe: LinearProbe, takes: Sequence[LabelledTake]) -> float:
    """Return the mean cross-entropy of known tokens at the best temperature (0 if none is known).

    Classes that never occurred in training are left out: every strength gives them nothing.
    """
    from scipy.optimize import minimize_scalar  # slow to import, and who only predicts never fits

    parts = []
    for take in takes:
        labels = torch.from_numpy(take.labels.astype(np.int64)).to(probe.bias.device)
        learned = (labels >= 0) & probe.bias[labels.clamp(min=0)].isfinite()
        parts.append((probe.logits(take.features)[learned].T, labels[learned]))
    if not sum(len(labels) for _, labels in parts):
        return 0.0
    logits, label = (torch.cat(list(part), dim=-1) for part in zip(*parts, strict=True))  # [C, N]
    token = torch.arange(len(label), device=label.device)

    def mean_loss(log_scale: float) -> float:
        logp = torch.log_softmax(float(np.exp(log_scale)) * logits, 0)
        return -float(logp[label, token].mean(dtype=torch.float64))

    return float(minimize_scalar(mean_loss, bounds=LOG_SCALES, method="bounded").fun)


def _known_tokens(takes: Sequence[LabelledTake], device: str) -> tuple[Tensor, Tensor]:
    """Return the features [N, D] and labels [N] of all tokens with a known label, in order.

    Take by take, so that they lie in memory only once besides the takes themselves.
    """
    known = [take.labels >= 0 for take in takes]
    if not any(mask.any() for mask in known):
        raise InputError("no labelled train token to fit a probe on")
    ends = np.cumsum([int(mask.sum()) for mask in known]).tolist()
    features = torch.empty(ends[-1], takes[0].features.shape[1], device=device)
    for take, mask, first, last in zip(takes, known, [0, *ends], ends, strict=False):
        features[first:last] = torch.from_numpy(take.features[mask]).to(device)
    labels = np.concatenate([take.labels[mask] for take, mask in zip(takes, known, strict=True)])
    return features, torch.from_numpy(labels.astype(np.int64)).to(device)


def _whole_probe(
    model: LogisticModel, seen: Tensor, classes: int, mean: Tensor, std: Tensor
) -> LinearProbe:
    """Return the probe over all classes from a model over the classes seen in training."""
    weight = mean.new_zeros(classes, len(mean))
    bias = mean.new_full((classes,), -torch.inf)
    weight[seen], bias[seen] = model.weight.float(), model.bias.float()
    details = {
        "fit": "converged",
        "l2": model.l2,
        "iterations": model.iterations,
        "converged": model.converged,
        "train_loss": round(model.loss, 6),
    }
    return LinearProbe(weight, bias, mean, std, details)


# The linear probe fitted under its roles, on any representation and any target.

FITS = ("converged", "paper")
SMALL = 2**28  # bytes of takes of which every fit may hold a copy


def fit_and_score(
    read: ReadTake,
    targets: Targets,
    config: LinearConfig,
    common: ProbeCommonConfig,
    fits: Sequence[str] = FITS,
) -> dict[str, FitResult]:
    """Return one result per fit; the paper's fit uses the first of `common.seeds`.

    Where a core is free and a second copy of the takes is small, two fits are made at once.
    """
    torch.set_num_threads(common.threads)
    takes, held = (
        [labelled_take(take, read(take)[0], targets.labels) for take in ids]
        for ids in (targets.roles.fit, targets.roles.holdout)
    )

    def fitted(name: str) -> LinearProbe:
        if name == "converged":
            return fit_converged(takes, held, targets.classes, config, common.device)
        return fit_paper(takes, targets.classes, config.paper, common.seeds[0], common.device)

    small = sum(take.features.nbytes for take in takes) <= SMALL
    with ThreadPoolExecutor(2 if small and common.has_spare_core() else 1) as pool:
        probes = list(pool.map(fitted, fits))
    pairs = zip(fits, probes, strict=True)
    return {name: score_probe(probe, read, targets) for name, probe in pairs}


def probe_accuracy(
    features: Callable[[str], Features],
    labels: Labels,
    takes: pd.DataFrame,
    common: ProbeCommonConfig,
    config: LinearConfig,
) -> float:
    """Return how well a converged probe reads any per-token target, in percent of known tokens."""

    def read(take: str) -> tuple[Features, SegmentIds]:
        tokens = features(take)
        return tokens, np.zeros(len(tokens), np.int64)

    classes = 1 + max(int(target.max(initial=0)) for target in labels.values())
    targets = Targets(labels, take_roles(takes, labels), classes, None)
    results = fit_and_score(read, targets, config, common, fits=("converged",))
    return results["converged"].metrics()["acc_bg"]


# The demo's true primitives, read by a linear probe: do tokens show what can be seen at all?

READERS = ("raw", "pjepa")  # the representations the proof asks


def primitive_targets(reader: StreamReader, truth: Path) -> Labels:
    """Return the primitive shown at every token (the last truth up to its time), -1 if none."""
    frame = pq.read_table(truth).to_pandas()
    parts = {str(take): part for take, part in frame.groupby("take_id", sort=False)}
    targets = {}
    for take in reader.takes:
        if take not in parts:
            raise InputError(f"{truth}: no take {take!r}; run `dvc repro takes`")
        times = parts[take]["time_s"].to_numpy(np.float64)
        index = np.searchsorted(times, reader.read(take).times + 1e-6, side="right") - 1
        primitive = parts[take]["primitive"].to_numpy(np.int32)[np.maximum(index, 0)]
        targets[take] = np.where(index >= 0, primitive, -1).astype(np.int32)
    return targets


class LinearKind(ProbeKind):
    """Both fits of the linear probe."""

    def fits(self, cell: CellData, config: LinearConfig, work: Path | None) -> Iterator[Run]:
        """Yield the optimum once per variant, and the paper's fit once per variant and seed."""
        for variant, reader in enumerate(cell.readers):
            for number, seed in enumerate(cell.common.seeds):
                common = cell.common.model_copy(update={"seeds": (seed,)})
                fits = FITS if number == 0 else ("paper",)
                results = fit_and_score(take_reader(reader), cell.targets, config, common, fits)
                for fit, result in results.items():
                    yield Run(fit, variant, None if fit == "converged" else seed, result)
                if number == 0:
                    _say_linear(cell, variant, results)

    def load(self, folder: Path) -> LinearProbe:
        """Return the probe that `LinearProbe.save` wrote."""
        return LinearProbe.load(folder)

    def readings(self, cell: CellData, config: LinearConfig, truth: Path) -> dict[str, float]:
        """Return how many percent of tokens (idle included) show their true primitive."""
        if cell.representation not in READERS:
            return {}
        reader = cell.readers[0]
        targets = primitive_targets(reader, truth)
        accuracy = probe_accuracy(
            lambda take: reader.read(take).features, targets, cell.takes, cell.common, config
        )
        return {"primitive": accuracy}


def _say_linear(cell: CellData, variant: int, results: dict[str, FitResult]) -> None:
    acc = {fit: f"{result.metrics()['acc']:.1f}" for fit, result in results.items()}
    where = f"{variant + 1}/{len(cell.readers)} on {cell.roles.split}"
    say(
        f"{cell.name} {where}: acc {acc['converged']} to convergence, {acc['paper']} by the "
        "paper's recipe (AdamW, fixed epochs)"
    )


KIND = LinearKind()
