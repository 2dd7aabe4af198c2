"""One training step of FACT (2048-d, T = 2000, iUUU, 116 classes, 22 segments) against a plain one.

The reference is written from the description of FACT: one module call per layer, [T, 1, C] and
[1, C, T] layouts, concatenations, attention kept per frame, and matching costs from a dense
[T, M, S] array. Both sides start from the same weights and draw the same channel masks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import count
from typing import Any, NamedTuple

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, dropout1d

from benchmarks.probes import Case
from pjepa.probes.fact.config import FactConfig
from pjepa.probes.fact.probe import Fact

FRAMES, WIDTH, CLASSES, SEGMENTS = 2000, 2048, 116, 22


class PlainOutput(NamedTuple):
    """One block, as the reference keeps it."""

    x: Tensor  # [T, 1, hidden]
    a: Tensor  # [M, 1, hidden]
    frame_logits: Tensor  # [T, C]
    token_logits: Tensor  # [M, C + 1]
    f2a: Tensor | None = None  # [M, R] logits
    a2f: Tensor | None = None  # [R, M] logits
    attention: Tensor | None = None  # [T, M]
    run_logits: Tensor | None = None  # [R, C]
    run: Tensor | None = None  # [T] run of every frame


def plain_frames(branch: Any, x: Tensor) -> Tensor:
    """Return MS-TCN++ on x [T, 1, C]."""
    f = x.permute(1, 2, 0)  # [1, C, T]
    f = f if branch.conv_1x1_in is None else branch.conv_1x1_in(f)
    layers = zip(branch.conv_dilated_1, branch.conv_dilated_2, branch.conv_fusion, strict=True)
    for first, second, fusion in layers:
        f = torch.relu(fusion(torch.cat([first(f), second(f)], dim=1))) + f
    return branch.conv_out(f).permute(2, 0, 1)


def plain_split(x: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    logits = x[..., -classes:]
    return torch.cat([x[..., :-classes], logits.softmax(-1)], dim=-1), logits.squeeze(1)


def plain_placed(x: Tensor, position: Tensor) -> Tensor:
    width = position.shape[-1]
    return torch.cat([x[..., :width] + position, x[..., width:]], dim=-1)


def plain_feed(layer: Any, a: Tensor, norm: nn.Module) -> Tensor:
    return norm(a + layer.linear2(torch.relu(layer.linear1(a))))


def plain_input(block: Any, x: Tensor, query: Tensor) -> PlainOutput:
    """Return block i on x [T, 1, D]."""
    x, frame_logits = plain_split(plain_frames(block.frame_branch, x), block.classes)
    a, branch = torch.zeros_like(query), block.action_branch
    for layer in branch.layers:
        q = a + query
        a = layer.norm1(a + layer.self_attn(q, q, a)[0])
        a = layer.norm2(a + layer.multihead_attn(a + query, x, x)[0])
        a = plain_feed(layer, a, layer.norm3)
    a, token_logits = plain_split(branch.out_linear(branch.norm(a)), block.classes + 1)
    return PlainOutput(x, a, frame_logits, token_logits)


def plain_cross(layer: Any, x: Tensor, y: Tensor, key: Tensor, query: Tensor) -> Any:
    """Return one-head attention: y's update and the logits [Y, X]."""
    k, v, q = layer.X_K(key), layer.X_V(x), layer.Y_Q(query)
    logits = torch.einsum("ybd,xbd->byx", q, k) / k.shape[-1] ** 0.5
    read = torch.einsum("byx,xbd->ybd", logits.softmax(-1), v)
    return layer.Y_W(torch.cat([y, read], dim=-1)), logits[0]


def plain_update(block: Any, last: PlainOutput, query: Tensor) -> PlainOutput:
    """Return block U."""
    labels = last.x[:, 0, -block.classes :].argmax(-1)
    _, run, lengths = torch.unique_consecutive(labels, return_inverse=True, return_counts=True)
    total = last.x.new_zeros(len(lengths), 1, last.x.shape[-1]).index_add(0, run, last.x)
    s = block.seg_combine(torch.relu(block.seg_update(total / lengths[:, None, None])[0]))
    s, run_logits = plain_split(s, block.classes)
    a, f2a = plain_cross(block.f2a_layer, s, last.a, s, plain_placed(last.a, query))
    for layer in block.action_branch.layers:
        q = a + query
        a = layer.norm1(a + layer.multihead_attn(q, q, a)[0])
        a = plain_feed(layer, a, layer.norm2)
    a, token_logits = plain_split(block.action_branch.out_linear(a), block.classes + 1)
    s, a2f = plain_cross(block.a2f_layer, a, s, plain_placed(a, query), s)
    x = block.sf_merge(torch.cat([s[run], last.x], dim=-1))
    x, frame_logits = plain_split(plain_frames(block.frame_branch, x), block.classes)
    attention = a2f.softmax(-1)[run]
    return PlainOutput(x, a, frame_logits, token_logits, f2a, a2f, attention, run_logits, run)


def plain_forward(model: Fact, features: Tensor) -> list[PlainOutput]:
    """Return every block's output for features [T, D]."""
    x = features.T[None]  # [1, D, T]
    x = dropout1d(x, model.config.channel_mask, model.training).permute(2, 0, 1)
    outputs = [plain_input(model.block_list[0], x, model.action_query)]
    for block in model.block_list[1:]:
        outputs.append(plain_update(block, outputs[-1], model.action_query))
    return outputs


@torch.no_grad()
def plain_match(config: FactConfig, last: PlainOutput, inside: Tensor, names: Tensor) -> Any:
    """Return Hungarian matching from the dense soft IoU.

    `inside` [T, S] is 1 in a segment's frames.
    """
    assert last.attention is not None
    attention, segment = last.attention[:, :, None], inside[:, None, :]
    common = (attention * segment).sum(0)  # [M, S]
    iou = common / (attention + segment).clamp(max=1).sum(0)
    cost = -config.class_cost * last.token_logits.softmax(-1)[:, names] - config.overlap_cost * iou
    return linear_sum_assignment(cost.numpy())


def plain_smooth(logits: Tensor) -> Tensor:
    logp = logits.log_softmax(-1)
    return (logp[1:] - logp[:-1]).square().clamp(max=16).mean()


def plain_run_losses(
    output: PlainOutput, inside: Tensor, names: Tensor, tokens: Any, segments: Any, weights: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the losses of the runs' classes and of both attentions."""
    assert output.run is not None
    assert output.run_logits is not None
    assert output.f2a is not None
    assert output.a2f is not None
    runs, classes = output.run_logits.shape
    share = inside.new_zeros(runs, len(names)).index_add(0, output.run, inside)
    share = share / share.sum(1, keepdim=True)  # [R, S]
    histogram = share @ nn.functional.one_hot(names, classes).float()
    seg = -(histogram * weights[:-1] * output.run_logits.log_softmax(-1)).sum() / runs
    target, weight = share[:, segments], weights[names]
    f2a = output.f2a.T[:, tokens].log_softmax(0)
    a2f = output.a2f[:, tokens].log_softmax(1)
    by_token = -(f2a * target * weight).sum() / target.sum()
    return seg, by_token, -(a2f * target * weight).sum() / runs


def plain_loss(model: Fact, outputs: list[PlainOutput], labels: Tensor) -> Tensor:
    """Return the mean over blocks; every label is known."""
    config, weights, losses = model.config, model.class_weight, []
    _, run = torch.unique_consecutive(labels, return_inverse=True)
    inside = nn.functional.one_hot(run).float()  # [T, S]
    names = labels[inside.argmax(0)]
    tokens, segments = plain_match(config, outputs[-1], inside, names)
    target = torch.full((config.tokens,), len(weights) - 1)
    target[tokens] = names[segments]
    for output in outputs:
        frame = cross_entropy(output.frame_logits, labels, weights[:-1], reduction="none").mean()
        total = cross_entropy(output.token_logits, target, weights)
        if output.run is not None:
            seg, f2a, a2f = plain_run_losses(output, inside, names, tokens, segments, weights)
            frame, total = (frame + seg) / 2, total + f2a + a2f
        smooth = plain_smooth(output.frame_logits)
        losses.append(frame + total + config.smooth_weight * smooth)
    return torch.stack(losses).mean()


@cache
def example() -> tuple[Tensor, Tensor]:
    """Return random features and labels."""
    torch.manual_seed(0)
    labels = torch.randint(CLASSES, (SEGMENTS,)).repeat_interleave(FRAMES // SEGMENTS + 1)
    return torch.randn(FRAMES, WIDTH), labels[:FRAMES]


def training_step(
    loss: Callable[[Fact, Tensor, Tensor], Tensor], fused: bool
) -> Callable[[], float]:
    """Return a callable that makes the next step of a fresh model and returns its loss."""
    torch.manual_seed(0)
    model = Fact(FactConfig(), WIDTH, CLASSES, background=0)
    optimizer = torch.optim.Adam(model.parameters(), lr=model.config.lr, fused=fused)
    features, labels = example()
    seeds = count()

    def step() -> float:
        torch.manual_seed(next(seeds))  # of the channel mask
        optimizer.zero_grad()
        found = loss(model, features, labels)
        found.backward()
        nn.utils.clip_grad_norm_(model.parameters(), model.config.clip_grad)
        optimizer.step()
        return float(found.detach())

    return step


def cases() -> list[Case]:
    """Return the step of the paper's FACT; each side with the optimiser it is trained by."""

    def plain(model: Fact, x: Tensor, y: Tensor) -> Tensor:
        return plain_loss(model, plain_forward(model, x), y)

    ours = training_step(lambda model, x, y: model.loss(model(x), y), fused=True)
    reference = training_step(plain, fused=False)
    return [Case("FACT, 2048-d, T = 2000, iUUU", ours, reference)]
