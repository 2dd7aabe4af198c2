"""The release's two-headed linear probe: which step it is, and whether there is one at all.

    prediction = argmax of W_f x + b_f over the steps    if W_a x + b_a says "active"
                 background                              otherwise

Both losses are cross entropies, summed 1:1; the first leaves background tokens out. Names of the
parameters are those of the released heads.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pjepa.probes.base.scoring import Sight
from pjepa.probes.base.trained import Task, TemporalProbe, TrainedKind
from pjepa.probes.foreground.config import CONFIG, ForegroundConfig
from pjepa.ui.console import InputError


class Logits(NamedTuple):
    foreground: Tensor  # [T, C - 1], every class but background in order
    activity: Tensor  # [T, 2], idle and active


class ForegroundProbe(TemporalProbe):
    """Two affine maps per token."""

    sight = Sight("token")

    def __init__(self, config: ForegroundConfig, task: Task) -> None:
        super().__init__()
        if task.background is None or not 0 <= task.background < task.classes or task.classes < 2:
            raise InputError(
                "probe foreground needs a background class and a step in classes.json; use linear"
            )
        self.background = task.background
        self.foreground_fc = nn.Linear(task.width, task.classes - 1)
        self.activity_fc = nn.Linear(task.width, 2)

    def forward(self, features: Tensor, segments: Tensor) -> Logits:
        return Logits(self.foreground_fc(features), self.activity_fc(features))

    def loss(self, outputs: Logits, labels: Tensor) -> Tensor:
        """Return the sum of both cross entropies over the known tokens; 0 if there is none."""
        known, active = labels >= 0, (labels >= 0) & (labels != self.background)
        activity = cross_entropy(outputs.activity[known], active[known].long(), reduction="sum")
        step = labels - (labels > self.background).long()  # [T] ids without the background
        foreground = cross_entropy(outputs.foreground[active], step[active], reduction="sum")
        return activity / known.sum().clamp_min(1) + foreground / active.sum().clamp_min(1)

    def predict(self, features: Tensor, segments: Tensor) -> Tensor:
        """Return [T, C] whose argmax is the release's prediction.

        An idle token has the joint distribution, in which background has at least a half. An
        active one has the distribution over steps, given that there is one.
        """
        outputs = self(features, segments)
        step = outputs.foreground.softmax(1)
        idle, active = outputs.activity.softmax(1).unbind(1)  # [T]
        is_active = outputs.activity.argmax(1) == 1
        share = active.masked_fill(is_active, 1)[:, None]
        rest = idle.masked_fill(is_active, 0)[:, None]
        before, after = (share * step).tensor_split([self.background], dim=1)
        return torch.cat([before, rest, after], dim=1)


KIND = TrainedKind("foreground", CONFIG, ForegroundProbe)
