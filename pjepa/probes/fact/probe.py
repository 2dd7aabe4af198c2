"""FACT (Lu and Elhamifar, CVPR 2024): blocks, loss and prediction."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout

from pjepa.probes.base.trained import Task, TemporalProbe, TrainedKind
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
    if not alive.any():
        return by_frame
    attention = last.exchange.frame_attention().masked_fill(~alive, -1)
    token = attention.argmax(-1)  # [T]
    by_token = last.token_logits[:, :-1].softmax(-1)[token]
    return (1 - frame_weight) * by_token + frame_weight * by_frame


Outputs = tuple[BlockOutput, ...]


class Fact(TemporalProbe):
    """FACT on one take; every prediction depends on the whole of it."""

    class_weight: Tensor

    def __init__(self, config: FactConfig, task: Task) -> None:
        super().__init__()
        classes = task.classes
        if classes + 1 > config.hidden:
            raise InputError(
                f"FACT: {classes} classes do not fit; set probe.fact.hidden above {classes}"
            )
        self.config, self.width = config, task.width
        self.action_query = nn.Parameter(torch.randn(config.tokens, 1, config.action_dim))
        kinds = {"u": UpdateBlock, "U": RunBlock}
        updates = [kinds[letter](config, classes) for letter in config.blocks[1:]]
        self.block_list = nn.ModuleList([InputBlock(config, task.width, classes), *updates])
        weights = class_weights(config, classes, task.background)
        self.register_buffer("class_weight", weights, persistent=False)

    def forward(self, features: Tensor, segments: Tensor | None = None) -> Outputs:
        """Return the output of every block for features [T, D]; segments are not looked at."""
        if features.ndim != 2 or features.shape[1] != self.width or not len(features):
            raise InputError(
                f"FACT: features are {tuple(features.shape)}, expected [frames, {self.width}] "
                "with at least one frame"
            )
        channels = features.new_ones(self.width)
        x = features * dropout(channels, self.config.channel_mask, self.training)
        query = self.action_query.squeeze(1)  # [M, action_dim]
        outputs = [self.block_list[0](x, query)]
        for block in self.block_list[1:]:
            outputs.append(block(outputs[-1], query))
        return tuple(outputs)

    def loss(self, outputs: Outputs, labels: Tensor) -> Tensor:
        """Return the mean of the blocks' losses for labels [T]; -1 is unknown.

        A take without any label has nothing but its smoothness.
        """
        truth = self.truth(outputs, labels)
        if not len(truth.classes):
            smooth = [block_smoothness(output) for output in outputs]
            return self.config.smooth_weight * torch.stack(smooth).mean()
        terms = self.terms(outputs, truth)
        return torch.stack([block_loss(t, self.config.smooth_weight) for t in terms]).mean()

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
        return matched(last.token_logits, last.exchange, truth, *costs)

    def predict(self, features: Tensor, segments: Tensor | None = None) -> Tensor:
        """Return class probabilities [T, C] of features [T, D]: argmax the label, max its score."""
        return merged_probability(self(features)[-1], self.config.merge_weight)


def with_enough_tokens(config: FactConfig, task: Task) -> FactConfig:
    """Return the config with at least one token per segment of the longest fitted take."""
    return config.model_copy(update={"tokens": max(config.tokens, task.most_segments)})


KIND = TrainedKind("fact", CONFIG, Fact, adapt=with_enough_tokens)
