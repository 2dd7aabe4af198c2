"""FACT part by part against plain formulas, on odd takes and on bad input."""

import itertools
import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import nn
from torch.testing import assert_close

from pjepa.probes.base.trained import Task
from pjepa.probes.fact.blocks import Exchange, runs_of
from pjepa.probes.fact.config import FactConfig
from pjepa.probes.fact.gru import gru_states
from pjepa.probes.fact.losses import block_loss, soft_iou, truth_of
from pjepa.probes.fact.probe import KIND, Fact
from pjepa.ui.console import InputError
from tests.probes.fact_models import (
    CLASSES,
    SMALL,
    STRINGS,
    WIDTH,
    small,
    some_take,
)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("steps", [1, 2, 17])
def test_gru_equals_torch(steps: int, layers: int) -> None:
    gru = nn.GRU(8, 4, layers, bidirectional=True).double()
    x = torch.randn(steps, 8, dtype=torch.float64, requires_grad=True)
    chosen = torch.randn(steps, 8, dtype=torch.float64)
    found, expected = gru_states(gru, x), gru(x)[0]
    assert_close(found, expected)
    inputs = [x, *gru.parameters()]
    ours, theirs = (torch.autograd.grad((y * chosen).sum(), inputs) for y in (found, expected))
    assert_close(ours, theirs)


def test_update_block_by_hand() -> None:
    model = small(blocks="iu").double().eval()
    first, second = model(some_take()[0])
    block: Any = model.block_list[1]
    x, a, query = first.frames, first.tokens, model.action_query[:, 0]
    f2a, a2f = block.f2a_layer, block.a2f_layer

    def with_position(tokens: torch.Tensor) -> torch.Tensor:
        return tokens + torch.cat([query, torch.zeros(12, 16)], dim=1)

    logits = f2a.Y_Q(with_position(a)) @ f2a.X_K(x).T / 32**0.5
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
    logits = a2f.Y_Q(x) @ a2f.X_K(with_position(a)).T / 32**0.5
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


@pytest.mark.parametrize("blocks", STRINGS)
@pytest.mark.parametrize(
    "labels", [[2], [-1], [0, 0, 0], [-1, 3, -1, 3, 0], [5, -1], [-1] * 4, [0, 1, 2, 3, 4, 5]]
)
def test_odd_takes(labels: list[int], blocks: str) -> None:
    model = small(blocks=blocks, dropout=0.1)
    features = torch.randn(len(labels), WIDTH)
    loss = model.loss(model(features), torch.tensor(labels, dtype=torch.int32))
    loss.backward()
    assert loss.isfinite()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(g.isfinite().all() for g in gradients)
    assert model.eval().predict(features).shape == (len(labels), CLASSES)


@pytest.mark.parametrize("background", [None, 3])
@pytest.mark.parametrize("blocks", STRINGS)
def test_unknown_frames_have_no_gradient(blocks: str, background: int | None) -> None:
    model = small(background, blocks=blocks, tokens=20, smooth_weight=0.0)
    features, labels = some_take()
    labels[7:15] = -1
    outputs = model.eval()(features.float())
    outputs[-1].frame_logits.retain_grad()
    model.loss(outputs, labels).backward()
    gradient = outputs[-1].frame_logits.grad
    assert gradient is not None
    assert (gradient[7:15] == 0).all()
    assert (gradient[:7] != 0).any(1).all()
    assert model.loss(model(features.float()), torch.full_like(labels, -1)).item() == 0


def test_tokens_grow_to_the_segments() -> None:
    features, labels = torch.randn(30, WIDTH), torch.arange(30) % CLASSES
    for segments, tokens in ((30, 30), (3, 12)):
        task = Task(WIDTH, CLASSES, 0, most_segments=segments)
        grown = KIND.new(FactConfig(**SMALL), task, 0)
        assert grown.settings["tokens"] == tokens
    module = KIND.new(FactConfig(**SMALL), Task(WIDTH, CLASSES, 0, most_segments=30), 0).module
    assert module.loss(module(features), labels).isfinite()


def test_bad_input_is_one_line() -> None:
    model = small()
    outputs, longer = model(torch.randn(4, WIDTH)), torch.randn(30, WIDTH)
    wrong: list[tuple[str, Any]] = [
        ("expected [frames, 20]", lambda: model(torch.randn(4, 3))),
        ("at least one frame", lambda: model(torch.randn(0, WIDTH))),
        ("for 4 frames", lambda: model.loss(outputs, torch.zeros(5, dtype=torch.long))),
        ("for 6 classes", lambda: model.loss(outputs, torch.tensor([0, 1, 2, 6]))),
        ("-2 to 1", lambda: model.loss(outputs, torch.tensor([0, 1, 1, -2]))),
        ("hidden above 40", lambda: Fact(FactConfig(**SMALL), Task(WIDTH, 40, 0))),
        ("diverged", lambda: model.loss(model(torch.full((4, WIDTH), torch.nan)), torch.arange(4))),
        (
            "30 segments but there are 12 action tokens; set probe.fact.tokens to 30",
            lambda: model.loss(model(longer), torch.arange(30) % CLASSES),
        ),
    ]
    for text, call in wrong:
        with pytest.raises(InputError, match=re.escape(text)) as error:
            call()
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "changes",
    [{"blocks": "UU"}, {"blocks": "i"}, {"blocks": "iUi"}, {"tokens": 20}, {"action_heads": 7},
     {"hidden": 33}, {"action_dim": 1024}, {"ntoken": 3}],
)  # fmt: skip
def test_impossible_configs(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        FactConfig(**changes)


def test_masking_hides_whole_channels_in_training_alone() -> None:
    model, x = small(channel_mask=0.5), torch.randn(50, WIDTH)
    shown = []
    model.block_list[0].register_forward_pre_hook(lambda _, inputs: shown.append(inputs[0]))
    model(x)
    hidden = (shown[0] == 0).all(0)
    assert 0 < int(hidden.sum()) < WIDTH
    assert torch.equal(shown[0][:, ~hidden], 2 * x[:, ~hidden])
    model.eval()(x)
    assert torch.equal(shown[1], x)
