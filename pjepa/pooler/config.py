"""`pooler`: from the patches of one step to one token (paper Sec. 3.1)."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from pjepa.core.machine import MachineSection
from pjepa.core.section import WindowScope

MAX_FOLDS = 20
PoolerKind = Literal["mean", "action"]


class PoolerConfig(MachineSection):
    """Settings of the pooler: `mean` has nothing to train; `action` is Eq. 1, trained on the labels
    of train takes.

    Depth, heads, window and queries are the authors' (64 frames, 64 queries); the paper gives no
    optimisation, so that is V-JEPA's recipe for attentive probes (AdamW, cosine to 0, 20 epochs).
    """

    purpose: ClassVar[str] = "From the patches of one step to one token (paper Sec. 3.1)."
    tuned: ClassVar[tuple[str, ...]] = (
        "kind",
        "cells",
        "window",
        "depth",
        "heads",
        "input_norm",
        "scope",
        "target",
        "folds",
        "epochs",
        "lr",
        "weight_decay",
        "batch_windows",
        "seed",
        "precision",
    )

    kind: PoolerKind = "mean"

    # mean: average over space (the paper's mean-pool), or keep the stored cells side by side
    cells: Literal["average", "concat"] = "average"

    # action: the model (Eq. 1)
    window: int = Field(64, ge=1)  # steps seen together
    queries: int | None = Field(None, ge=1)  # tokens of a window; null: one per step
    width: int | None = Field(None, ge=1)  # of a token; null: the backbone's, d_v
    depth: int = Field(4, ge=1)  # self-attention blocks and the cross-attention
    heads: int = Field(16, ge=1)
    mlp_ratio: float = Field(4.0, gt=0)
    dropout: float = Field(0.0, ge=0, lt=1)
    attend: Literal["cells", "steps"] = "cells"  # steps: a step's cells side by side (coarse grids)
    # Unlike V-JEPA's attentive probes (none), queries must find their own frame.
    positions: Literal["none", "temporal", "spatiotemporal"] = "spatiotemporal"
    input_norm: Literal["none", "standardize"] = "none"  # per place and channel, train patches
    scope: WindowScope = "segment"  # what the windows of extraction stay inside

    # action: what it is trained on
    target: Literal["clip", "frame"] = "clip"  # the segment's label (paper), or every token's
    folds: int = Field(0, ge=0, le=MAX_FOLDS)  # 0: train tokens know their own labels

    # action: optimisation
    epochs: int = Field(20, ge=1)
    patience: int = Field(5, ge=1)  # epochs without a lower loss of held-out train groups
    lr: float = Field(3e-4, gt=0)
    weight_decay: float = Field(0.01, ge=0)
    clip_grad: float = Field(1.0, gt=0)
    batch_windows: int = Field(16, ge=1)
    seed: int = Field(0, ge=0)

    # running
    precision: Literal["fp32", "bf16"] = "fp32"

    @model_validator(mode="after")
    def fits(self) -> PoolerConfig:
        if self.queries is not None and self.queries % self.window:
            raise ValueError(
                f"queries {self.queries} is not a multiple of window {self.window}: every step "
                "gets the same number of tokens"
            )
        if self.width is not None and self.width % self.heads:
            raise ValueError(f"heads {self.heads} does not divide width {self.width}")
        if self.folds == 1:
            raise ValueError("folds 1 leaves nothing to train on; allowed: 0, or 2 and more")
        return self

    @property
    def per_step(self) -> int:
        """Return tokens of one step of patches."""
        if self.kind == "mean" or self.queries is None:
            return 1
        return self.queries // self.window
