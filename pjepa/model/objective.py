"""P-JEPA's objective (Eq. 2): predict the teacher's latents at hidden places from what is visible.

    L = 1/|M| sum_{i in M} || g(fill(f(X_C)))_i - f_bar(X)_i ||_1

| here            | paper                | sees                                |
|-----------------|----------------------|-------------------------------------|
| `student`       | f_phi                | context tokens C only               |
| `predictor`     | g_psi                | the student's features of C         |
| `teacher`       | f_bar, EMA of f_phi  | every token; no gradient            |
| `mask.target`   | M                    | where the loss is taken             |
| `neighbours`    | not in the paper     | a second, optional term             |
"""

from __future__ import annotations

import copy
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pjepa.model.attention import Layout
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.masking import Mask
from pjepa.model.neighbours import NeighbourHeads, Pairs, neighbour_error
from pjepa.model.predictor import Predictor
from pjepa.ui.transfer import sent


@dataclass(frozen=True, eq=False)
class Batch:
    """Whole takes, packed."""

    features: Tensor  # [N, d_in]
    layout: Layout
    mask: Mask
    pairs: Pairs | None = None  # of the neighbour term

    def __len__(self) -> int:
        return len(self.features)

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch on another device, without waiting for the copies."""
        pairs = None if self.pairs is None else self.pairs.to(device)
        features = sent(self.features, device)
        return Batch(features, self.layout.to(device), self.mask.to(device), pairs)


class Counts(NamedTuple):
    """What a step's terms are divided by."""

    targets: int  # |M|
    pairs: int = 0  # |A| of the neighbour term


class Terms(NamedTuple):
    """A batch's share of the terms of a step."""

    eq2: Tensor
    neighbour: Tensor | None  # L_neighbour, not weighted
    targets: Tensor  # [M, d] the teacher's


class Jepa(nn.Module):
    """Student, predictor, EMA teacher and, if wanted, the heads of the neighbour term."""

    def __init__(
        self,
        student: ProcedureEncoder,
        predictor: Predictor,
        neighbours: NeighbourHeads | None = None,
        target_norm: str = "none",
        loss_reduction: str = "mean",
    ) -> None:
        super().__init__()
        self.student, self.predictor = student, predictor
        self.teacher = copy.deepcopy(student).requires_grad_(False).eval()
        self.neighbours = neighbours
        self.target_norm, self.loss_reduction = target_norm, loss_reduction

    def train(self, mode: bool = True) -> Jepa:
        """Set training mode for all but the teacher, whose targets never see dropout."""
        super().train(mode)
        self.teacher.eval()
        return self

    def trained_parameters(self) -> list[nn.Parameter]:
        """Return what the optimiser updates: everything but the teacher."""
        return [p for p in self.parameters() if p.requires_grad]

    @torch.no_grad()
    def inputs(self, batch: Batch) -> Tensor:
        """Return the tokens [N, d_in] normalised by the teacher."""
        return self.teacher.normalised(batch.features, batch.layout)

    @torch.no_grad()
    def targets(self, batch: Batch, inputs: Tensor) -> Tensor:
        """Return z_M [M, d]: the teacher's output at masked tokens, computed from all `inputs`."""
        z = self.teacher.contextualised(inputs, batch.layout, batch.mask.target)
        return F.layer_norm(z, z.shape[-1:]) if self.target_norm == "layer" else z

    def context(self, batch: Batch) -> Tensor:
        """Return f(X_C) [C, d]: the student on context tokens."""
        mask = batch.mask
        features = batch.features.index_select(0, mask.context)
        return self.student(features, batch.layout.at(mask.context, mask.context_lengths))

    def predictions(self, batch: Batch, context: Tensor) -> Tensor:
        """Return z_hat_M [M, d]: what the predictor makes of context features [C, d]."""
        return self.predictor(context, batch.layout, batch.mask)

    def counts(self, batch: Batch) -> Counts:
        """Return |M| and |A| of a batch."""
        pairs = 0 if batch.pairs is None else len(batch.pairs)
        return Counts(len(batch.mask.target), pairs)

    def forward(self, batch: Batch, counts: Counts, aside: Executor | None = None) -> Terms:
        """Return this batch's share of every term, in a step of `counts` targets and pairs.

        On a thread `aside` the teacher gives the same numbers, sooner. Float32 on the CPU only:
        autocast is set for one thread.
        """
        inputs = self.inputs(batch)
        taught: Tensor | Future[Tensor]
        if aside is None:
            taught = self.targets(batch, inputs)
        else:
            taught = aside.submit(self.targets, batch, inputs)
        context = self.context(batch)
        predicted = self.predictions(batch, context)
        neighbour = None
        if self.neighbours is not None and batch.pairs is not None:
            summed = neighbour_error(self.neighbours, context, batch.pairs, inputs)
            neighbour = summed / max(1, counts.pairs)
        targets = taught.result() if isinstance(taught, Future) else taught
        error = (predicted - targets).float().abs()
        per_token = error.sum(dim=1) if self.loss_reduction == "sum" else error.mean(dim=1)
        return Terms(per_token.sum() / max(1, counts.targets), neighbour, targets)

    def loss(self, batch: Batch) -> Tensor:
        """Return Eq. 2 for a batch that is a step of its own."""
        return self(batch, self.counts(batch)).eq2

    @torch.no_grad()
    def update_teacher(self, momentum: float) -> None:
        """Update the teacher: an exponential moving average of the student's parameters."""
        slow, fast = self._averaged
        torch._foreach_lerp_(slow, fast, 1.0 - momentum)

    @cached_property
    def _averaged(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return teacher and student parameters; walking the modules at every step is slow."""
        return list(self.teacher.parameters()), list(self.student.parameters())
