"""FACT as a trained probe."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from pjepa.probes.base.trained import Task, TrainedKind, WholeTakeProbe, padded
from pjepa.probes.fact.blocks import BlockOutput, InputBlock, RunBlock, UpdateBlock
from pjepa.probes.fact.config import CONFIG, FactConfig
from pjepa.probes.fact.losses import (
    LossWeights,
    Match,
    Truth,
    block_loss,
    block_smoothness,
    class_weights,
    loss_terms,
    matched,
    segment_weights,
    truth_of,
)
from pjepa.ui.console import InputError

# The merged prediction of both branches: the probability of every class at every frame.


def merged_probability(last: BlockOutput, frame_weight: float) -> Tensor:
    """Return (1 - w) P(class | the frame's token) + w P(class | the frame) [T, C].

    A frame's token is the one it attends to most among those whose best class is not null; if all
    are null, the frame branch decides alone.
    """
    assert last.exchange is not None
    by_frame = last.frame_logits.softmax(-1)
    alive = last.token_logits.argmax(-1) < by_frame.shape[-1]  # [M]
    attention = last.exchange.frame_attention().masked_fill(~alive[..., None, :], -1)
    token = attention.argmax(-1)  # [T]
    by_token = last.token_logits[..., :-1].softmax(-1).take_along_dim(token[..., None], -2)
    merged = (1 - frame_weight) * by_token + frame_weight * by_frame
    return torch.where(alive.any(-1)[..., None, None], merged, by_frame)


# FACT for one take: blocks, loss and prediction (Lu and Elhamifar, CVPR 2024).

Outputs = tuple[BlockOutput, ...]


class Fact(nn.Module):
    """The probe: `module(features)` -> outputs, `loss(outputs, labels)`, `predict(features)`."""

    class_weight: Tensor

    def __init__(
        self, config: FactConfig, width: int, classes: int, background: int | None
    ) -> None:
        super().__init__()
        if classes + 1 > config.hidden:
            raise InputError(
                f"FACT: {classes} classes do not fit; set probe.fact.hidden above {classes}"
            )
        self.config, self.width = config, width
        self.action_query = nn.Parameter(torch.randn(config.tokens, 1, config.action_dim))
        kinds = {"u": UpdateBlock, "U": RunBlock}
        updates = [kinds[letter](config, classes) for letter in config.blocks[1:]]
        self.block_list = nn.ModuleList([InputBlock(config, width, classes), *updates])
        weights = class_weights(config, classes, background)
        self.register_buffer("class_weight", weights, persistent=False)

    def forward(self, features: Tensor, padding: Tensor | None = None) -> Outputs:
        """Return the output of every block for features [T, D].

        Takes together are [B, T, D], with `padding` bool [B, T] where they are padded.
        """
        expected_ndim = 2 if padding is None else 3
        if (features.ndim, features.shape[-1]) != (expected_ndim, self.width) or not len(features):
            raise InputError(
                f"FACT: features are {tuple(features.shape)}, expected [frames, {self.width}] "
                "with at least one frame"
            )
        x = self.masked(features) if self.training else features
        query = self.action_query.squeeze(1)  # [M, action_dim]
        width, placed = self.config.hidden, self.config.positions
        position = frame_positions(x.shape[-2], width, x) if placed else None
        outputs = [self.block_list[0](x, query, position, padding)]
        for block in self.block_list[1:]:
            outputs.append(block(outputs[-1], query, position, padding))
        return tuple(outputs)

    def loss(self, outputs: Outputs, labels: Tensor) -> Tensor:
        """Return the mean of the blocks' losses for labels [T]; -1 is unknown.

        A take without any label has nothing but its smoothness.
        """
        truth = self.truth(outputs, labels)
        if not len(truth.classes):
            smooth = [block_smoothness(output) for output in outputs]
            return self.config.smooth_weight * torch.stack(smooth).mean()
        found = [block_loss(t, self.config.smooth_weight) for t in self.terms(outputs, truth)]
        return torch.stack(found).mean()

    def terms(self, outputs: Outputs, truth: Truth) -> list[dict[str, Tensor]]:
        """Return the unweighted loss terms of every block; all share the last one's match."""
        match = self.match(outputs, truth)
        aligned = self.config.align_segment_weights
        segments = segment_weights(self.class_weight, truth, match, aligned)
        weights = LossWeights(self.class_weight, segments)
        return [loss_terms(output, truth, match, weights) for output in outputs]

    def truth(self, outputs: Outputs, labels: Tensor) -> Truth:
        """Return the segments of labels [T], checked against the outputs."""
        frames, classes = outputs[0].frame_logits.shape
        labels = labels.to(outputs[0].frame_logits.device, torch.long)
        if labels.shape != (frames,):
            raise InputError(f"FACT: labels are {tuple(labels.shape)} for {frames} frames")
        if labels.min() < -1 or labels.max() >= classes:
            raise InputError(
                f"FACT: labels {int(labels.min())} to {int(labels.max())} for {classes} classes; "
                "use 0 and up, or -1 for unknown"
            )
        return truth_of(labels)

    def match(self, outputs: Outputs, truth: Truth) -> Match:
        """Return the pairs of token and segment."""
        config, last = self.config, outputs[-1]
        assert last.exchange is not None  # the last block is u or U
        costs = (config.class_cost, config.overlap_cost)
        return matched(last.token_logits, last.exchange, truth, config.match, *costs)

    @torch.no_grad()
    def predict(self, features: Tensor) -> Tensor:
        """Return class probabilities [T, C] of features [T, D]: argmax the label, max its score."""
        return self._predicted(features)

    @torch.no_grad()
    def predict_together(self, takes: Sequence[Tensor]) -> Tensor:
        """Return class probabilities [B, T, C] of takes [T_i, D], each as if it were alone."""
        x, valid = padded(takes)
        return self._predicted(x, ~valid)

    def _predicted(self, features: Tensor, padding: Tensor | None = None) -> Tensor:
        training = self.training
        try:
            last = self.eval()(features, padding)[-1]
        finally:
            self.train(training)
        return merged_probability(last, self.config.merge_weight)

    def masked(self, x: Tensor) -> Tensor:
        """Return features [T, D] with random channels, then random spans of time, set to zero."""
        config, frames = self.config, len(x)
        x = x * dropout(x.new_ones(x.shape[1]), config.channel_mask)
        for _ in range(config.time_masks):
            drawn = int(torch.randint(config.time_mask_frames, ()))
            length = min(int(config.time_mask_share * frames), drawn)
            start = int(torch.randint(frames - length + 1, ()))
            x[start : start + length] = 0
        return x


def frame_positions(frames: int, width: int, like: Tensor) -> Tensor:
    """Return sinusoids [T, width] with base 10000: even channels sine, odd channels cosine."""
    time = torch.arange(frames, device=like.device, dtype=torch.float32)
    pair = torch.arange(0, width, 2, device=like.device, dtype=torch.float32)
    angle = time[:, None] * 10000.0 ** (-pair / width)  # [T, width / 2]
    return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1).to(like.dtype)


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


# How the registry builds, fits and loads this probe.

TRAINED_KIND = TrainedKind(
    "fact",
    CONFIG,
    FactProbe,
    adapt=lambda config, task: config.with_tokens_for(task.most_segments),
)
KIND = TRAINED_KIND.probe_kind
