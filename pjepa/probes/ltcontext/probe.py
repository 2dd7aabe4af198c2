"""LTContext as a trained probe."""

from collections.abc import Sequence

from torch import Tensor

from pjepa.probes.base.trained import Task, TrainedKind, WholeTakeProbe
from pjepa.probes.ltcontext.config import CONFIG, LTContextConfig
from pjepa.probes.ltcontext.model import LTContext


class LTContextProbe(WholeTakeProbe):
    """LTContext (ICCV 2023) on one take; every prediction depends on the whole of it."""

    model: LTContext

    def __init__(self, config: LTContextConfig, task: Task) -> None:
        super().__init__()
        self.model = LTContext(config, task.width, task.classes)

    def forward(self, features: Tensor, segments: Tensor) -> list[Tensor]:
        return self.model(features, segments)

    def loss(self, outputs: list[Tensor], labels: Tensor) -> Tensor:
        """Return the sum of the stages' losses."""
        return self.model.loss(outputs, labels)

    def predict(self, features: Tensor, segments: Tensor) -> Tensor:
        """Return the probabilities of the last stage [T, C]."""
        return self.model.predict(features, segments)

    def predict_together(self, takes: Sequence[Tensor]) -> Tensor:
        """Return the probabilities of the last stage [B, T, C]."""
        return self.model.predict_together(takes)

    def one_by_one(self, features: Tensor) -> bool:
        """Return whether it is a CPU or a model that a batch changes: a norm sees the padding."""
        alone = self.model.causal or self.model.config.normalised
        return alone or super().one_by_one(features)


# How the registry builds, fits and loads this probe.

TRAINED_KIND = TrainedKind("ltcontext", CONFIG, LTContextProbe)
KIND = TRAINED_KIND.probe_kind
