"""What stands before the first step: statistics of the tokens, the model, its optimiser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pjepa.model.attention import layout_of_takes
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.neighbours import NeighbourHeads, segment_means
from pjepa.model.objective import Jepa
from pjepa.model.predictor import Predictor
from pjepa.model.release import init_encoder
from pjepa.model.segments import fit_threshold
from pjepa.model.style import fit_style
from pjepa.nn.fit import AdamW, channel_scale
from pjepa.pretrain.config import PjepaConfig
from pjepa.pretrain.data import TrainingTake
from pjepa.ui.console import InputError, say

STYLE_SHARE = 0.5  # of the variance, constant inside takes, that deserves a warning
STILL = 1e-12  # a mean variance up to here is rounding


@dataclass(frozen=True)
class Statistics:
    """What is measured over all training tokens, before there is a model."""

    mean: Tensor  # [d_in]
    std: Tensor  # [d_in]
    take_share: float  # of the variance that is constant inside a take (camera, light), 0 to 1


def measure(takes: Sequence[TrainingTake]) -> Statistics:
    """Return the statistics of takes; their features must change."""
    features = [torch.from_numpy(take.features) for take in takes]
    mean, std = channel_scale(features)
    within = between = 0.0
    for x in features:
        own = x.mean(dim=0, dtype=torch.float64)
        within += float((x - own).square().sum())
        between += len(x) * float((own - mean).square().sum())
    if within + between <= STILL * sum(x.numel() for x in features):
        raise InputError(
            "pretrain: no feature changes in any of the training takes; check the features' "
            "extractor"
        )
    return Statistics(mean, std, between / (within + between))


def encoder_config(config: PjepaConfig, d_in: int) -> EncoderConfig:
    """Return the encoder's part of the `pjepa` section."""
    shared = config.model_dump(include=set(EncoderConfig.model_fields))
    causal = config.input_norm == "causal_center"
    shared["style_rank"] = min(config.style_rank, d_in) if causal else 0
    return EncoderConfig(d_in=d_in, **shared)


def new_model(config: PjepaConfig, takes: Sequence[TrainingTake], statistics: Statistics) -> Jepa:
    """Return a seeded model with the training tokens' statistics, or one to continue."""
    shape = encoder_config(config, len(statistics.mean))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        if config.init_from is None:
            student = ProcedureEncoder(shape).to(config.device)
            fit_buffers(student, takes, statistics)
        else:
            student = initial_encoder(config.init_from, shape, config.predictor_heads)
        shape, places = student.config, config.neighbours
        predictor = Predictor(shape, config.predictor_depth, config.predictor_heads)
        # Last, so that all other weights are drawn as without it.
        neighbours = NeighbourHeads(shape.width, shape.d_in, places) if places else None
    model = Jepa(student, predictor, neighbours, config.target_norm, config.loss_reduction)
    for stack in (model.student.blocks, model.predictor.blocks):
        stack.recompute = config.checkpoint_activations
    return model.to(config.device)


def initial_encoder(name: str, shape: EncoderConfig, predictor_heads: int) -> ProcedureEncoder:
    """Return the encoder `init_from` with its own architecture."""
    encoder = init_encoder(name, "cpu")
    own = encoder.config
    if own.d_in != shape.d_in:
        raise InputError(
            f"pjepa.init_from {name}: takes tokens of {own.d_in} channels, "
            f"the stream has {shape.d_in}"
        )
    if own.width % predictor_heads:
        raise InputError(
            f"pjepa.predictor_heads {predictor_heads} does not divide the width {own.width} of "
            f"pjepa.init_from {name}"
        )
    differs = [key for key, value in shape if getattr(own, key) != value]
    if differs:
        say(f"pretrain: {name} uses its own {', '.join(differs)} instead of params.yaml's")
    return encoder


def fit_buffers(
    encoder: ProcedureEncoder, takes: Sequence[TrainingTake], statistics: Statistics
) -> None:
    """Fill the encoder's buffers: spread of tokens, style of takes, threshold for segments."""
    encoder.mean.copy_(statistics.mean)
    encoder.std.copy_(statistics.std)
    config = encoder.config
    if config.style_rank:
        mean, std = encoder.mean, encoder.std
        tokens = ((torch.tensor(t.features).to(mean.device).float() - mean) / std for t in takes)
        style = fit_style(tokens, config.style_rank, config.style_look)
        encoder.style_read.copy_(style.read)
        encoder.style_write.copy_(style.write)
        encoder.style_strength.copy_(style.strength)
    rule = encoder.segment_rule()
    if rule.found is not None:
        features = [take.features for take in takes]
        threshold = fit_threshold(features, rule.found.config, rule.found.std)
        encoder.found_threshold.fill_(threshold)


@torch.no_grad()
def fit_spread(
    heads: NeighbourHeads, encoder: ProcedureEncoder, takes: Sequence[TrainingTake]
) -> None:
    """Fill the heads' `spread` from takes that have the segments the encoder uses."""
    device, means = heads.spread.device, []
    for take in takes:
        layout = layout_of_takes([take.segment]).to(device)
        normal = encoder.normalised(torch.tensor(take.features).to(device).float(), layout)
        means.append(segment_means(normal, layout.segment, torch.bincount(layout.segment)))
    heads.spread.copy_(torch.cov(torch.cat(means).double().T, correction=0))


def optimizer_for(model: Jepa, config: PjepaConfig) -> torch.optim.AdamW:
    """Return AdamW on everything but the teacher."""
    trained = model.trained_parameters()
    return AdamW(trained, lr=config.lr, weight_decay=config.weight_decay, fused=True)


def warn_of_style(statistics: Statistics, config: PjepaConfig) -> None:
    """Warn when most variance is constant inside takes and nothing removes it."""
    share = statistics.take_share
    if share > STYLE_SHARE and not config.centres_takes():
        say(
            f"pretrain: {100 * share:.0f} % of the variance is constant inside a take (camera, "
            "person, light), which masked prediction learns instead of the procedure; try "
            "pjepa.input_norm=causal_center"
        )
