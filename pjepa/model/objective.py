"""P-JEPA's objective (Eq. 2): predict the teacher's latents at hidden places from what is visible.

    L = 1/|M| sum_{i in M} || g(fill(f(X_C)))_i - f_bar(X)_i ||_1

| here      | paper                | sees                                |
|-----------|----------------------|-------------------------------------|
| `student` | f_phi                | context tokens C only               |
| `teacher` | f_bar, EMA of f_phi  | every token; no gradient            |
| `target`  | M                    | where the loss is taken             |

`neighbours.py` holds a second, optional term that is not in the paper.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pjepa.model.attention import Layout
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.masking import MaskRows, rows_of
from pjepa.model.neighbours import NeighbourHeads, Pairs, neighbour_error, pairs_of
from pjepa.model.predictor import Predictor
from pjepa.ui.transfer import sent


@dataclass(frozen=True)
class Batch:
    """Whole takes, packed; `target` marks M."""

    features: Tensor  # [N, d_in]
    target: Tensor  # [N] bool
    layout: Layout
    known_rows: MaskRows | None = None
    known_pairs: Pairs | None = None  # of the neighbour term

    @cached_property
    def rows(self) -> MaskRows:
        """Return C and M as indices."""
        return self.known_rows or rows_of(self.target, self.layout.take_lengths)

    def pairs(self, places: Sequence[int]) -> Pairs:
        """Return the pairs A of the neighbour term as indices."""
        if self.known_pairs is not None:
            return self.known_pairs
        return pairs_of(places, self.rows.visible, self.layout)

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch on another device, without waiting for the copies."""
        features, target = sent(self.features, device), sent(self.target, device)
        pairs = None if self.known_pairs is None else self.known_pairs.to(device)
        return Batch(features, target, self.layout.to(device), self.rows.to(device), pairs)


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
    """Student, predictor and EMA teacher."""

    teacher_thread: ThreadPoolExecutor | None = None  # see `teacher_aside`

    def __init__(
        self,
        config: EncoderConfig,
        predictor_depth: int,
        predictor_heads: int,
        target_norm: str = "none",
        loss_reduction: str = "mean",
        student: ProcedureEncoder | None = None,
        neighbours: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        self.student = student if student is not None else ProcedureEncoder(config)
        self.predictor = Predictor(config, predictor_depth, predictor_heads)
        self.teacher = copy.deepcopy(self.student).requires_grad_(False).eval()
        self.target_norm, self.loss_reduction = target_norm, loss_reduction
        # Last, so that all other weights are drawn as without it.
        self.heads = NeighbourHeads(config.width, config.d_in, neighbours) if neighbours else None

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
    def targets(self, batch: Batch, inputs: Tensor | None = None) -> Tensor:
        """Return z_M [M, d]: the teacher's output at masked tokens, computed from all tokens."""
        x = self.inputs(batch) if inputs is None else inputs
        z = self.teacher.contextualised(x, batch.layout, batch.rows.hidden)
        return F.layer_norm(z, z.shape[-1:]) if self.target_norm == "layer" else z

    def context(self, batch: Batch) -> Tensor:
        """Return f(X_C) [C, d]: the student on context tokens."""
        rows = batch.rows
        features = batch.features.index_select(0, rows.visible)
        return self.student(features, batch.layout.at(rows.visible, rows.lengths))

    def predictions(self, batch: Batch, context: Tensor) -> Tensor:
        """Return z_hat_M [M, d]: what the predictor makes of context features [C, d]."""
        return self.predictor(context, batch.target, batch.layout, batch.rows)

    def neighbour_error(
        self, batch: Batch, context: Tensor, inputs: Tensor | None = None
    ) -> Tensor | None:
        """Return the neighbour term's error summed over its pairs, or None without that term."""
        if self.heads is None:
            return None
        x = self.inputs(batch) if inputs is None else inputs
        return neighbour_error(self.heads, context, batch.pairs(self.heads.places), x)

    def counts(self, batch: Batch) -> Counts:
        """Return |M| and |A| of a batch."""
        pairs = 0 if self.heads is None else len(batch.pairs(self.heads.places))
        return Counts(len(batch.rows.hidden), pairs)

    def forward(self, batch: Batch, counts: Counts) -> Terms:
        """Return this batch's share of every term, in a step of `counts` targets and pairs."""
        inputs = self.inputs(batch)
        taught = self._started_targets(batch, inputs)
        context = self.context(batch)
        predicted = self.predictions(batch, context)
        neighbour = self.neighbour_error(batch, context, inputs)
        if neighbour is not None:
            neighbour = neighbour / max(1, counts.pairs)
        targets = taught()
        error = (predicted - targets).float().abs()
        per_token = error.sum(dim=1) if self.loss_reduction == "sum" else error.mean(dim=1)
        return Terms(per_token.sum() / max(1, counts.targets), neighbour, targets)

    @contextmanager
    def teacher_aside(self) -> Iterator[None]:
        """Run the teacher on a thread of its own: the same numbers, sooner.

        Float32 on the CPU only: autocast is set for one thread.
        """
        with ThreadPoolExecutor(1) as self.teacher_thread:
            try:
                yield
            finally:
                self.teacher_thread = None

    def _started_targets(self, batch: Batch, inputs: Tensor) -> Callable[[], Tensor]:
        """Return a function that gives the targets; on its own thread the teacher starts now."""
        if self.teacher_thread is None:
            targets = self.targets(batch, inputs)
            return lambda: targets
        self.teacher.table(batch.layout)  # kept in the layout, which both threads read
        return self.teacher_thread.submit(self.targets, batch, inputs).result

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
