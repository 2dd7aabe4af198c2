"""Trained probes: a module over one take, and the same module fitted and stored.

A module reads `features [T, D]` and `segments [T]` (0, 1, 2 ... along the take; only modules that
are told boundaries look at them) and offers

    module(features, segments) -> outputs      whatever its own loss understands
    loss(outputs, labels [T]) -> Tensor        -1 is unknown
    predict(features, segments) -> [T, C]      probabilities, in eval mode
    sight                                      how far ahead a prediction depends on tokens
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from pjepa.core.files import write_json
from pjepa.core.runs import Span
from pjepa.probes.base.probe import Features, SegmentIds
from pjepa.probes.base.sight import Sight
from pjepa.ui.errors import InputError


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
        for found in self.module.predict_newest(*self._inputs(features, segments), spans):
            yield _array(found)

    def save(self, folder: Path) -> None:
        """Write `model.safetensors` and `config.json`."""
        folder.mkdir(parents=True, exist_ok=True)
        state = {f"module.{name}": value for name, value in self.module.state_dict().items()}
        tensors = {**state, "mean": self.mean, "std": self.std}
        stored = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
        save_file(stored, folder / "model.safetensors")
        config = {"kind": self.kind, **asdict(self.task), "settings": self.settings}
        write_json(folder / "config.json", {**config, "fit": self.details})

    def _inputs(self, features: Features, segments: SegmentIds | None) -> tuple[Tensor, Tensor]:
        if segments is None and self.sight.to == "segment":
            raise InputError(
                f"{self.kind}: needs the segments of the take; give them, or train one that "
                "counts blocks (probe.ltcausal.block)"
            )
        place = np.zeros(len(features), np.int64) if segments is None else segments
        device = self.mean.device
        x = torch.from_numpy(np.ascontiguousarray(features, np.float32)).to(device)
        return (x - self.mean) / self.std, torch.from_numpy(np.asarray(place, np.int64)).to(device)


def _array(found: Tensor) -> Features:
    return found.float().cpu().numpy()
