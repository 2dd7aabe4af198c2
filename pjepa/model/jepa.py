"""P-JEPA's objective (Eq. 2): predict the teacher's latents at hidden places from what is visible.

    L = 1/|M| sum_{i in M} || g(fill(f(X_C)))_i - f_bar(X)_i ||_1

| here      | paper                | sees                                |
|-----------|----------------------|-------------------------------------|
| `student` | f_phi                | context tokens C only               |
| `teacher` | f_bar, EMA of f_phi  | every token; no gradient            |
| `target`  | M                    | where the loss is taken             |
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pjepa.model.encoder import EncoderConfig, ProcedureEncoder
from pjepa.model.layout import Layout
from pjepa.model.predictor import Predictor


@dataclass(frozen=True)
class Batch:
    """Whole takes, packed; `target` marks M."""

    features: Tensor  # [N, d_in]
    target: Tensor  # [N] bool
    layout: Layout

    def to(self, device: torch.device | str) -> Batch:
        return Batch(self.features.to(device), self.target.to(device), self.layout.to(device))


class Jepa(nn.Module):
    """Student, predictor and EMA teacher."""

    def __init__(
        self,
        config: EncoderConfig,
        predictor_depth: int,
        predictor_heads: int,
        target_norm: str = "none",
        loss_reduction: str = "mean",
        student: ProcedureEncoder | None = None,
    ) -> None:
        super().__init__()
        self.student = student if student is not None else ProcedureEncoder(config)
        self.predictor = Predictor(config, predictor_depth, predictor_heads)
        self.teacher = copy.deepcopy(self.student).requires_grad_(False).eval()
        self.target_norm, self.loss_reduction = target_norm, loss_reduction

    def train(self, mode: bool = True) -> Jepa:
        """Training mode for all but the teacher, whose targets are never dropped out."""
        super().train(mode)
        self.teacher.eval()
        return self

    def trained_parameters(self) -> list[nn.Parameter]:
        """What the optimiser sees: everything but the teacher."""
        return [p for p in self.parameters() if p.requires_grad]

    def targets(self, batch: Batch) -> Tensor:
        """z_M [M, d]: the teacher on all tokens, at the hidden ones."""
        with torch.no_grad():
            z = self.teacher(batch.features, batch.layout)[batch.target]
        return F.layer_norm(z, z.shape[-1:]) if self.target_norm == "layer" else z

    def predictions(self, batch: Batch) -> Tensor:
        """z_hat_M [M, d]: the student on context tokens, filled up by the predictor."""
        visible = ~batch.target
        context = self.student(batch.features[visible], batch.layout.subset(visible))  # [C, d]
        return self.predictor(context, batch.target, batch.layout)[batch.target]

    def forward(self, batch: Batch, count: int) -> tuple[Tensor, Tensor]:
        """(This batch's share of Eq. 2 in a step of `count` targets, its targets)."""
        targets = self.targets(batch)
        error = (self.predictions(batch) - targets).float().abs()
        per_token = error.sum(dim=1) if self.loss_reduction == "sum" else error.mean(dim=1)
        return per_token.sum() / count, targets

    def loss(self, batch: Batch) -> Tensor:
        """Eq. 2 for a batch that is a step of its own."""
        return self(batch, max(1, int(batch.target.sum())))[0]

    @torch.no_grad()
    def update_teacher(self, momentum: float) -> None:
        """The teacher follows the student: an exponential moving average of its parameters."""
        slow: list[Tensor] = list(self.teacher.parameters())
        fast: list[Tensor] = list(self.student.parameters())
        torch._foreach_lerp_(slow, fast, 1.0 - momentum)
