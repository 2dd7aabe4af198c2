"""FACT equals an obvious version of itself."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from benchmarks.probes_fact import plain_forward, plain_loss, plain_match
from pjepa.probes.fact import branches as frame_branch
from pjepa.probes.fact.blocks import Exchange, gru_states, runs_of
from pjepa.probes.fact.branches import conv3, dual_dilated
from pjepa.probes.fact.losses import block_loss, one_to_many, soft_iou, truth_of
from pjepa.probes.fact.probe import frame_positions
from tests.probes.fact_models import (
    CLASSES,
    one_thread,
    small,
    some_take,
)

__all__ = ["one_thread"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("frames", [1, 5, 40, 90])
def test_equals_plain_version(frames: int, seed: int) -> None:
    features, labels = some_take(frames, seed)
    model = small(blocks="iUU", tokens=20).double()
    outputs, plain = model.eval()(features), plain_forward(model, features)
    for ours, reference in zip(outputs, plain, strict=True):
        assert_close(ours.frame_logits, reference.frame_logits)
        assert_close(ours.token_logits, reference.token_logits)
    loss, reference_loss = model.loss(outputs, labels), plain_loss(model, plain, labels)
    if frames == 1:  # its smoothness is the mean of nothing there, 0 here
        assert loss.isfinite()
        return
    assert_close(loss, reference_loss)
    parameters = list(model.parameters())
    ours_grad = torch.autograd.grad(loss, parameters)
    plain_grad = torch.autograd.grad(reference_loss, parameters)
    for found, expected in zip(ours_grad, plain_grad, strict=True):
        assert_close(found, expected, atol=1e-9, rtol=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(0, 5), st.integers(0, 5), st.integers(1, 6))
def test_folding_changes_nothing(frames: int, first: int, second: int, width: int) -> None:
    convs = (conv3(width, 2**first), conv3(width, 2**second), nn.Conv1d(2 * width, width, 1))
    parameters = [p for conv in convs for p in conv.double().parameters()]
    x = torch.randn(frames, width, dtype=torch.float64, requires_grad=True)
    chosen = torch.randn(frames, width, dtype=torch.float64)
    joined = torch.cat([conv(x.T[None]) for conv in convs[:2]], dim=1)
    expected = convs[2](joined)[0].T.relu()
    for fold_from in (0, 1000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(frame_branch, "FOLD_FROM", fold_from)
            found = dual_dilated(x, *convs)
        assert_close(found, expected)
        gradients = torch.autograd.grad((found * chosen).sum(), [x, *parameters])
        reference = torch.autograd.grad(
            (expected * chosen).sum(), [x, *parameters], retain_graph=True
        )
        for ours, plain in zip(gradients, reference, strict=True):
            assert_close(ours, plain, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("steps", [1, 2, 17])
def test_gru_equals_torch(steps: int, layers: int) -> None:
    gru = nn.GRU(8, 4, layers, bidirectional=True).double()
    x = torch.randn(steps, 8, dtype=torch.float64, requires_grad=True)
    chosen = torch.randn(steps, 8, dtype=torch.float64)
    found, expected = gru_states(gru, x), gru(x)[0]
    assert_close(found, expected)
    inputs = [x, *gru.parameters()]
    reference = torch.autograd.grad((expected * chosen).sum(), inputs)
    for ours, plain in zip(
        torch.autograd.grad((found * chosen).sum(), inputs), reference, strict=True
    ):
        assert_close(ours, plain)


@pytest.mark.parametrize("norm", [False, True])
def test_mstcn_branch(norm: bool) -> None:
    model = small(blocks="iu", frame="m", frame_norm=norm).double()
    branch: Any = model.block_list[0].frame_branch
    x, _ = some_take()
    f = branch.conv_1x1(x.T[None])
    for dilation, layer in zip((1, 2, 4), branch.layers, strict=True):
        assert layer.conv_dilated.dilation == (dilation,)
        f = f + layer.conv_1x1(layer.conv_dilated(f).relu())
        f = layer.norm(f.transpose(1, 2)).transpose(1, 2)
    assert_close(branch(x), branch.conv_out(f)[0].T)
    assert not any(
        name.startswith("conv_1x1") for name in model.block_list[1].frame_branch.state_dict()
    )


@pytest.mark.parametrize("positions", [False, True])
def test_update_block_by_hand(positions: bool) -> None:
    model = small(blocks="iu", positions=positions).double().eval()
    features, _ = some_take()
    first, second = model(features)
    block: Any = model.block_list[1]
    x, a, query = first.frames, first.tokens, model.action_query[:, 0]
    table = frame_positions(len(x), 32, x) if positions else torch.zeros_like(x)
    a_placed = a + torch.cat([query, torch.zeros(12, 16)], dim=1)
    f2a, a2f = block.f2a_layer, block.a2f_layer
    logits = f2a.Y_Q(a_placed) @ f2a.X_K(x + table).T / 32**0.5
    assert second.exchange is not None
    assert_close(second.exchange.f2a, logits)
    asked = f2a.Y_W(torch.cat([a, logits.softmax(1) @ f2a.X_V(x)], dim=1))
    layer = block.action_branch.layers[0]
    q = asked + query
    asked = layer.norm1(asked + layer.multihead_attn(q, q, asked)[0])
    asked = layer.norm2(asked + layer.linear2(layer.linear1(asked).relu()))
    a = block.action_branch.out_linear(asked)
    assert_close(second.token_logits, a[:, -7:])
    a = torch.cat([a[:, :-7], a[:, -7:].softmax(1)], dim=1)
    a_placed = a + torch.cat([query, torch.zeros(12, 16)], dim=1)
    logits = a2f.Y_Q(x + table) @ a2f.X_K(a_placed).T / 32**0.5
    assert_close(second.exchange.a2f, logits)
    x = a2f.Y_W(torch.cat([x, logits.softmax(1) @ a2f.X_V(a)], dim=1))
    assert_close(second.frame_logits, block.frame_branch(x)[:, -CLASSES:])


def test_update_block_losses_by_hand() -> None:
    model = small(blocks="iu", tokens=20).double().eval()
    features, labels = some_take()
    outputs = model(features)
    truth = model.truth(outputs, labels)
    match, exchange = model.match(outputs, truth), outputs[1].exchange
    assert exchange is not None
    terms = model.terms(outputs, truth)[1]
    by_token = exchange.f2a[match.token].log_softmax(1)  # [S, T]
    by_frame = exchange.a2f[:, match.token].log_softmax(1)  # [T, S]
    weights = model.class_weight[truth.classes]
    f2a = a2f = 0.0
    for t, column in itertools.product(range(len(labels)), range(len(match.token))):
        if truth.segment_of_frame[t] == match.segment[column]:
            f2a -= (weights[column] * by_token[column, t]).item() / len(labels)
            a2f -= (weights[column] * by_frame[t, column]).item() / len(labels)
    assert terms["f2a"].item() == pytest.approx(f2a)
    assert terms["a2f"].item() == pytest.approx(a2f)
    smooth = sum(
        (logits.log_softmax(1)[1:] - logits.log_softmax(1)[:-1]).square().clamp(max=16).mean()
        for logits in (outputs[1].frame_logits, exchange.a2f, exchange.f2a.T)
    )
    assert_close(terms["smooth"], smooth)
    total = terms["frame"] + terms["token"] + terms["f2a"] + terms["a2f"] + 5 * terms["smooth"]
    assert_close(block_loss(terms, 5.0), total)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-1, 3), min_size=1, max_size=30), st.integers(1, 5), st.booleans())
def test_soft_iou_equals_dense(labels: list[int], tokens: int, by_runs: bool) -> None:
    truth = truth_of(torch.tensor(labels))
    runs = runs_of(torch.randint(2, (len(labels),))) if by_runs else None
    a2f = torch.randn(len(labels) if runs is None else len(runs.lengths), tokens)
    exchange = Exchange(a2f.T, a2f, runs)
    known = truth.segment_of_frame >= 0
    attention = exchange.frame_attention()[known, :, None]  # [T, M, 1]
    inside = truth.segment_of_frame[known, None] == torch.arange(len(truth.classes))
    dense = (attention * inside[:, None]).sum(0) / (attention + inside[:, None]).clamp(max=1).sum(0)
    assert_close(soft_iou(exchange, truth), dense)


def test_match_equals_dense() -> None:
    features, labels = some_take(90)
    model = small(tokens=20).double().eval()
    outputs, plain = model(features), plain_forward(model, features)
    truth = truth_of(labels)
    match = model.match(outputs, truth)
    inside = nn.functional.one_hot(truth.segment_of_frame).double()
    tokens, segments = plain_match(model.config, plain[-1], inside, truth.classes)
    assert match.token.tolist() == tokens.tolist()
    assert match.segment.tolist() == segments.tolist()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(4, 9), st.integers(0, 99))
def test_one_to_many_serves_every_segment(names: list[int], tokens: int, seed: int) -> None:
    cost = np.random.default_rng(seed).normal(size=(tokens, len(names))).astype(np.float32)
    classes = np.array(names)
    token, segment = one_to_many(cost, classes)
    assert sorted(segment) == list(range(len(names)))
    assert [(names[s], s) for s in segment] == sorted((names[s], s) for s in segment)
    assert len({(t, names[s]) for t, s in zip(token, segment, strict=True)}) == len(set(token))
    own: dict[int, set[int]] = {}  # with one class only, every segment has the whole choice
    for t, s in zip(token, segment, strict=True):
        own.setdefault(names[s], set()).add(t)
    for t, s in zip(token, segment, strict=True):
        assert all(cost[t, s] <= cost[other, s] for other in own[names[s]])
    if len(own) == 1:
        np.testing.assert_array_equal(token, cost.argmin(0)[segment])


def test_positions() -> None:
    table = frame_positions(12_000, 8, torch.zeros(1))
    for t, pair in ((0, 0), (3, 1), (11_999, 3)):
        angle = np.float32(t) * 10000 ** (-2 * pair / 8)
        assert table[t, 2 * pair].item() == pytest.approx(np.sin(angle), abs=1e-3)
        assert table[t, 2 * pair + 1].item() == pytest.approx(np.cos(angle), abs=1e-3)
    runs = runs_of(torch.tensor([1, 1, 1, 2, 2, 0]))
    assert runs.middles().tolist() == [1, 3, 5]
