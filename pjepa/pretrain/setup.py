"""What stands before the first step: the model, the statistics it carries, its optimiser."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from pjepa.core.runs import runs
from pjepa.model.attention import layout_of_segments
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.neighbours import NeighbourHeads, segment_means
from pjepa.model.objective import Jepa
from pjepa.model.predictor import Predictor
from pjepa.model.release import init_encoder
from pjepa.model.segments import fit_threshold
from pjepa.model.style import fit_style
from pjepa.nn.fit import AdamW
from pjepa.pretrain.config import PjepaConfig
from pjepa.pretrain.data import LEAST_STD, TrainingTake, take_share, token_statistics
from pjepa.ui.console import InputError, say

STYLE_SHARE = 0.5  # of the variance, constant inside takes, that deserves a warning


def encoder_config(config: PjepaConfig, d_in: int) -> EncoderConfig:
    """Return the encoder's part of the `pjepa` section."""
    shared = config.model_dump(include=set(EncoderConfig.model_fields))
    causal = config.input_norm == "causal_center"
    shared["style_rank"] = min(config.style_rank, d_in) if causal else 0
    return EncoderConfig(d_in=d_in, **shared)


def new_model(config: PjepaConfig, takes: Sequence[TrainingTake]) -> Jepa:
    """Return a seeded model with the training tokens' statistics, or one to continue."""
    d_in = takes[0].features.shape[1]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        student = _initial_encoder(config, d_in)
        shape, places = student.config, config.neighbours
        predictor = Predictor(shape, config.predictor_depth, config.predictor_heads)
        # Last, so that all other weights are drawn as without it.
        neighbours = NeighbourHeads(shape.width, shape.d_in, places) if places else None
        model = Jepa(student, predictor, neighbours, config.target_norm, config.loss_reduction)
    for stack in (model.student.blocks, model.predictor.blocks):
        stack.recompute = config.checkpoint_activations
    return model.to(config.device)


def _initial_encoder(config: PjepaConfig, d_in: int) -> ProcedureEncoder:
    """Return a fresh encoder, or `init_from` with its own architecture."""
    wanted = encoder_config(config, d_in)
    if config.init_from is None:
        return ProcedureEncoder(wanted)
    encoder = init_encoder(config.init_from, "cpu")
    if encoder.config.d_in != d_in:
        raise InputError(
            f"pjepa.init_from {config.init_from}: takes tokens of {encoder.config.d_in} channels, "
            f"the stream has {d_in}"
        )
    if encoder.config.width % config.predictor_heads:
        raise InputError(
            f"pjepa.predictor_heads {config.predictor_heads} does not divide the width "
            f"{encoder.config.width} of pjepa.init_from {config.init_from}"
        )
    own = encoder.config.model_dump()
    differs = [name for name, value in wanted.model_dump().items() if own[name] != value]
    if differs:
        say(f"pretrain: {config.init_from} brings its own {', '.join(differs)}")
    return encoder


def measure_statistics(encoder: ProcedureEncoder, takes: Sequence[TrainingTake]) -> None:
    """Fill the encoder's buffers: spread of tokens, style of takes, threshold for segments."""
    measured = token_statistics(takes)
    if (measured[1] <= LEAST_STD).all():
        raise InputError(
            "pretrain: no feature changes in any of the training takes; check the features' "
            "extractor"
        )
    for buffer, value in zip((encoder.mean, encoder.std), measured, strict=True):
        buffer.copy_(torch.from_numpy(value))
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
def measure_spread(model: Jepa, takes: Sequence[TrainingTake]) -> None:
    """Fill the heads' `spread` from takes that have the segments the encoder uses."""
    assert model.neighbours is not None
    spread = model.neighbours.spread
    count, total, square = 0, spread.new_zeros(len(spread)).double(), spread.double() * 0
    for take in takes:
        means = _normalised_means(model.student, take).double()  # [S, d_in]
        count, total, square = count + len(means), total + means.sum(0), square + means.mT @ means
    mean = total / count
    spread.copy_(square / count - mean[:, None] * mean)


def _normalised_means(encoder: ProcedureEncoder, take: TrainingTake) -> Tensor:
    """Return the mean normalised token of every segment of a take [S, d_in]."""
    lengths = runs(take.segment)[1].tolist()
    x = torch.tensor(take.features).to(encoder.mean.device).float()
    layout = layout_of_segments([lengths]).to(x.device)
    sizes = torch.tensor(lengths, device=x.device)
    return segment_means(encoder.normalised(x, layout), layout.segment, sizes)


def optimizer_for(model: Jepa, config: PjepaConfig) -> torch.optim.AdamW:
    """Return AdamW on everything but the teacher; decay on all of it, or on matrices alone."""
    groups: list[dict[str, object]] = [{"params": model.trained_parameters()}]
    if config.decay == "matrices":
        matrix = {id(p) for m in model.modules() if isinstance(m, nn.Linear) for p in [m.weight]}
        trained = model.trained_parameters()
        groups = [
            {"params": [p for p in trained if id(p) in matrix]},
            {"params": [p for p in trained if id(p) not in matrix], "weight_decay": 0.0},
        ]
    return AdamW(groups, lr=config.lr, weight_decay=config.weight_decay, fused=True)


def warn_of_style(takes: Sequence[TrainingTake], config: PjepaConfig) -> None:
    """Warn when most variance is constant inside takes and nothing removes it."""
    share = take_share(takes)
    if share > STYLE_SHARE and not config.centres_takes():
        say(
            f"pretrain: {100 * share:.0f} % of the variance is constant inside a take (camera, "
            "person, light), which masked prediction latches onto; try "
            "pjepa.input_norm=causal_center"
        )


def runs_teacher_aside(config: PjepaConfig, processes: int = 1) -> bool:
    """Return whether every process has a core for its teacher beside the one for its student."""
    plain = config.precision == "fp32" and not config.compile
    return plain and config.has_spare_core(processes)
