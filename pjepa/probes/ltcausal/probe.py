"""LT-Causal as a trained probe."""

from pjepa.probes.base.sight import Sight
from pjepa.probes.base.temporal import Task
from pjepa.probes.ltcausal.config import LTCausalConfig
from pjepa.probes.ltcausal.model import LTCausal
from pjepa.probes.shared.long_term.probe import LTContextProbe


class LTCausalProbe(LTContextProbe):
    """LT-Causal (paper, Supplement): sees its own segment, or a fixed block, and the past.

    The release's, with its instance norm, sees the whole take.
    """

    def __init__(self, config: LTCausalConfig, task: Task) -> None:
        super(LTContextProbe, self).__init__()
        self.model = LTCausal(config, task.width, task.classes)
        self.sight = Sight("segment") if config.block is None else Sight("block", config.block)
        if config.normalised:
            self.sight = Sight("take")
