"""The linear probe fitted under its roles, on any representation and any target."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from pjepa.probes.base.config import ProbeCommonConfig
from pjepa.probes.base.data import CellData, Run, TakeSource
from pjepa.probes.base.roles import Labels, take_roles
from pjepa.probes.base.scoring import FitResult, LabelledTake, TakeTokens, Targets, score_probe
from pjepa.probes.linear.config import LinearConfig
from pjepa.probes.linear.probe import LinearProbe, fit_converged, fit_paper
from pjepa.ui.progress import say

FITS = ("converged", "paper")
SMALL = 2**28  # bytes of takes of which every fit may hold a copy


@dataclass(frozen=True)
class PlainTokens:
    """Features of takes whose segments do not matter."""

    features: Callable[[str], NDArray[np.float32]]

    def segments(self, take: str) -> NDArray[np.int64]:
        return np.zeros(len(self.features(take)), np.int64)


def fit_and_score(
    tokens: TakeTokens,
    targets: Targets,
    config: LinearConfig,
    common: ProbeCommonConfig,
    fits: Sequence[str] = FITS,
) -> dict[str, FitResult]:
    """Return one result per fit; the paper's fit uses the first of `common.seeds`."""
    torch.set_num_threads(common.threads)
    probes = fitted_probes(tokens, targets, config, common, fits)
    return {name: score_probe(probe, tokens, targets) for name, probe in probes.items()}


def fitted_probes(
    tokens: TakeTokens,
    targets: Targets,
    config: LinearConfig,
    common: ProbeCommonConfig,
    fits: Sequence[str],
) -> dict[str, LinearProbe]:
    """Return the probe of every fit; where a second core is free, two are made at once."""
    takes = [targets.example(take, tokens.features(take)) for take in targets.roles.fit]
    held = [targets.example(take, tokens.features(take)) for take in targets.roles.holdout]

    def fitted(name: str) -> LinearProbe:
        if name == "converged":
            return fit_converged(takes, held, targets.classes, config, common.device)
        return fit_paper(takes, targets.classes, config.paper, common.seeds[0], common.device)

    with ThreadPoolExecutor(fits_at_once(takes, common)) as pool:
        return dict(zip(fits, pool.map(fitted, fits), strict=True))


def fits_at_once(takes: Sequence[LabelledTake], common: ProbeCommonConfig) -> int:
    """Return 2 where a core is free and a second copy of the takes is small, else 1."""
    small = sum(take.features.nbytes for take in takes) <= SMALL
    return 2 if small and common.has_spare_core() else 1


def probe_accuracy(
    features: Callable[[str], NDArray[np.float32]],
    labels: Labels,
    takes: pd.DataFrame,
    common: ProbeCommonConfig,
    config: LinearConfig,
) -> float:
    """Return how well a converged probe reads any per-token target, in percent of known tokens."""
    classes = 1 + max(int(target.max(initial=0)) for target in labels.values())
    targets = Targets(labels, take_roles(takes, labels), classes, None)
    found = fit_and_score(PlainTokens(features), targets, config, common, fits=("converged",))
    return found["converged"].metrics()["acc_bg"]


def linear_runs(cell: CellData, config: LinearConfig, work: Path | None) -> Iterator[Run]:
    """Yield the optimum once per variant, and the paper's fit once per variant and seed."""
    for variant, reader in enumerate(cell.readers):
        for place, seed in enumerate(cell.common.seeds):
            common = cell.common.model_copy(update={"seeds": (seed,)})
            fits = FITS if place == 0 else ("paper",)
            found = fit_and_score(TakeSource(reader), cell.targets, config, common, fits)
            for fit, result in found.items():
                yield Run(fit, variant, None if fit == "converged" else seed, result)
            if place == 0:
                _say_linear(cell, variant, found)


def _say_linear(cell: CellData, variant: int, found: dict[str, FitResult]) -> None:
    acc = {fit: f"{result.metrics()['acc']:.1f}" for fit, result in found.items()}
    where = f"{variant + 1}/{len(cell.readers)} on {cell.roles.split}"
    say(
        f"{cell.name} {where}: acc {acc['converged']} to convergence, {acc['paper']} by the "
        "paper's recipe (AdamW, fixed epochs)"
    )
