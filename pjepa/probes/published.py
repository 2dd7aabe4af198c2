"""The field's own models as trained probes: thin wrappers that give each the probes' shape."""

from torch import Tensor

from pjepa.config.trained import FactProbeConfig, LTCausalProbeConfig, LTContextProbeConfig
from pjepa.probes.fact.model import Fact, Outputs
from pjepa.probes.ltcausal import LTCausal
from pjepa.probes.ltcontext import LTContext
from pjepa.probes.sight import Sight
from pjepa.probes.temporal import Task, TemporalProbe


class LTContextProbe(TemporalProbe):
    """LTContext (ICCV 2023) on one take; every prediction depends on the whole of it."""

    model: LTContext

    def __init__(self, config: LTContextProbeConfig, task: Task) -> None:
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


class LTCausalProbe(LTContextProbe):
    """LT-Causal (paper, Supplement): sees its own segment, or a fixed block, and the past."""

    def __init__(self, config: LTCausalProbeConfig, task: Task) -> None:
        super(LTContextProbe, self).__init__()
        self.model = LTCausal(config, task.width, task.classes)
        self.sight = Sight("segment") if config.block is None else Sight("block", config.block)


class FactProbe(TemporalProbe):
    """FACT (CVPR 2024) on one take; every prediction depends on the whole of it."""

    def __init__(self, config: FactProbeConfig, task: Task) -> None:
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
