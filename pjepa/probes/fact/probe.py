"""FACT as a trained probe."""

from collections.abc import Sequence

from torch import Tensor

from pjepa.probes.base.temporal import Task
from pjepa.probes.fact.config import FactConfig
from pjepa.probes.fact.model import Fact, Outputs
from pjepa.probes.shared.together import WholeTakeProbe


class FactProbe(WholeTakeProbe):
    """FACT (CVPR 2024) on one take; every prediction depends on the whole of it."""

    def __init__(self, config: FactConfig, task: Task) -> None:
        super().__init__()
        self.model = Fact(config, task.width, task.classes, task.background)

    def forward(self, features: Tensor, segments: Tensor) -> Outputs:
        return self.model(features)

    def loss(self, outputs: Outputs, labels: Tensor) -> Tensor:
        """Return the mean of the blocks' losses."""
        return self.model.loss(outputs, labels)

    def predict(self, features: Tensor, segments: Tensor) -> Tensor:
        """Return the merged probabilities of frames and tokens [T, C]."""
        return self.model.predict(features)

    def predict_together(self, takes: Sequence[Tensor]) -> Tensor:
        """Return the merged probabilities of several takes [B, T, C]."""
        return self.model.predict_together(takes)
