"""FACT equals the official numbers, part by part, and stands odd takes and bad input."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from safetensors import safe_open
from torch import Tensor, nn
from torch.testing import assert_close

from pjepa.probes.base.trained import Task
from pjepa.probes.fact.blocks import BlockOutput, Exchange, runs_of
from pjepa.probes.fact.config import FactConfig
from pjepa.probes.fact.gru import gru_states
from pjepa.probes.fact.losses import block_loss, smoothness, soft_iou, truth_of
from pjepa.probes.fact.probe import Fact, merged_probability
from pjepa.ui.console import InputError

GOLDEN = Path(__file__).parents[1] / "golden" / "tas"
with safe_open(GOLDEN / "fact_iUUU_ego.safetensors", "pt") as file:
    INFO = json.loads(file.metadata()["info"])
    OFFICIAL = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
SMALL: dict[str, Any] = {
    "tokens": 12, "hidden": 32, "action_dim": 16, "frame_dim": 16, "action_heads": 4,
    "action_ffn": 24, "action_layers": 2, "frame_layers": 3, "update_frame_layers": 3,
    "null_weight": INFO["nullw"],
}  # fmt: skip
WIDTH, CLASSES = 20, 6
ROUNDING = 5e-5  # the official float32 numbers are themselves 3e-5 off the exact (float64) ones
STRINGS = ("iU", "iu", "iuU", "iUu")
ODD = ([2], [-1], [0, 0, 0], [-1, 3, -1, 3, 0], [5, -1], [-1] * 4, [0, 1, 2, 3, 4, 5])


def small(background: int | None = 0, **changes: Any) -> Fact:
    return Fact(FactConfig(**{**SMALL, **changes}), Task(WIDTH, CLASSES, background))


def official(**changes: Any) -> Fact:
    model = small(**changes)
    state = {k.removeprefix("state."): v for k, v in OFFICIAL.items() if k.startswith("state.")}
    model.load_state_dict(state)
    return model.eval()


def some_take() -> tuple[Tensor, Tensor]:
    """Features and labels of 40 frames."""
    labels = torch.randint(CLASSES, (4,)).repeat_interleave(torch.arange(7, 14, 2))
    return torch.randn(40, WIDTH, dtype=torch.float64), labels


def test_official_outputs_and_attention() -> None:
    for index, output in enumerate(official()(OFFICIAL["input"])):
        parts = {"frame_clogit": output.frame_logits, "action_clogit": output.token_logits}
        parts |= {"frame_feature": output.frames, "action_feature": output.tokens}
        if output.exchange is not None:
            assert output.exchange.runs is not None
            assert output.exchange.runs.lengths.equal(OFFICIAL[f"block{index}.seg_lens"])
            parts |= {"seg_clogit": output.exchange.logits}
            parts |= {"a2f_attn": output.exchange.frame_attention()}
            for name, ours in (("f2a", output.exchange.f2a), ("a2f", output.exchange.a2f)):
                expected = OFFICIAL[f"block{index}.{name}_attn_logit"][0]
                assert_close(ours, expected, atol=ROUNDING, rtol=0, msg=f"block {index} {name}")
        for name, ours in parts.items():
            expected = OFFICIAL[f"block{index}.{name}"].reshape(ours.shape)
            assert_close(ours, expected, atol=2e-5, rtol=0, msg=f"block {index} {name}")


def test_official_match_and_prediction() -> None:
    model = official()
    outputs = model(OFFICIAL["input"])
    truth = model.truth(outputs, OFFICIAL["label"])
    match = model.match(outputs, truth)
    assert match.token.equal(OFFICIAL["match_action_ind"])
    assert match.segment.equal(OFFICIAL["match_seg_ind"])
    assert outputs[-1].exchange is not None
    iou = soft_iou(outputs[-1].exchange, truth)
    assert_close(iou, OFFICIAL["cost_soft_iou"], atol=1e-5, rtol=0)
    assert_close(model.class_weight, OFFICIAL["cweight"])
    assert_close(model.class_weight[truth.classes], OFFICIAL["sweight"])
    probability = model.predict(OFFICIAL["input"])
    assert probability.argmax(1).equal(OFFICIAL["pred"])
    assert_close(probability.sum(1), torch.ones(len(probability)))


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


def test_official_losses_and_gradients() -> None:
    model = official()
    outputs = model(OFFICIAL["input"])
    terms = model.terms(outputs, model.truth(outputs, OFFICIAL["label"]))
    names = {"token": "action_token", "smooth": "smooth_frame"}
    for index, (found, expected) in enumerate(zip(terms, INFO["components"], strict=True)):
        assert {names.get(name, name) for name in found} == set(expected)
        for name, value in found.items():
            assert value.item() == pytest.approx(expected[names.get(name, name)], abs=1e-5)
        total = block_loss(found, model.config.smooth_weight).item()
        assert total == pytest.approx(INFO["block_losses"][index], abs=2e-5)
    loss = model.loss(outputs, OFFICIAL["label"])
    assert loss.item() == pytest.approx(INFO["loss"], abs=1e-5)
    loss.backward()
    for name, expected in OFFICIAL.items():
        if name.startswith("grad."):
            found = model.get_parameter(name.removeprefix("grad.")).grad
            assert_close(found, expected, atol=5e-5, rtol=1e-4, msg=name)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 10)
    assert norm.item() == pytest.approx(INFO["grad_total_norm"], rel=1e-4)


def test_official_training() -> None:
    model = official(channel_mask=0.0).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=model.config.lr)
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = model.loss(model(OFFICIAL["input"]), OFFICIAL["label"])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), model.config.clip_grad)
        optimizer.step()
        losses.append(loss.item())
    np.testing.assert_allclose(losses, OFFICIAL["train_losses"].numpy(), atol=1e-4, rtol=0)


def test_aligned_segment_weights() -> None:
    losses = {}
    for aligned, weight in itertools.product((False, True), (0.5, 1.0)):
        model = official(align_segment_weights=aligned, background_weight=weight)
        losses[aligned, weight] = model.loss(model(OFFICIAL["input"]), OFFICIAL["label"]).item()
    assert losses[False, 0.5] == pytest.approx(7.850430, abs=1e-5)
    assert losses[True, 0.5] == pytest.approx(7.948219, abs=1e-5)
    assert losses[False, 1.0] == losses[True, 1.0]


def test_official_smoothing_and_merging() -> None:
    golden = np.load(GOLDEN / "smooth_and_merge.npz")
    takes = torch.from_numpy(golden["smooth.logits_BCT"]).transpose(1, 2).requires_grad_()
    value = torch.stack([smoothness(logits) for logits in takes]).mean()
    value.backward()
    assert value.item() == pytest.approx(float(golden["smooth.fact_value"]), abs=1e-5)
    assert_close(takes.grad, torch.from_numpy(golden["smooth.fact_grad_BTC"]), atol=1e-6, rtol=1e-5)
    for case in ("merge0", "merge1", "merge2", "merge3"):
        part = {
            name: torch.from_numpy(golden[f"{case}.{name}"])
            for name in ("frame_clogit", "action_clogit", "a2f_attn")
        }
        a2f = part["a2f_attn"][0].log()
        output = BlockOutput(
            part["frame_clogit"][:, 0], part["action_clogit"][:, 0],
            Exchange(a2f.T, a2f), torch.empty(0), torch.empty(0),
        )  # fmt: skip
        merged = merged_probability(output, float(golden[f"{case}.weight"]))
        np.testing.assert_array_equal(merged.argmax(1).numpy(), golden[f"{case}.pred"])


def test_paper_size() -> None:
    with torch.device("meta"):
        model = Fact(FactConfig(), Task(2048, 116, 0))
    blocks = [sum(p.numel() for p in block.parameters()) for block in model.block_list]
    assert blocks == [11_569_920, *[9_783_808] * 3]
    assert model.action_query.numel() == 51_200
    assert FactConfig().null_weight_for(116) == pytest.approx(0.0096590, abs=1e-7)


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
    target = (truth.segment_of_frame[:, None] == match.segment) * model.class_weight[truth.classes]
    by_frame, by_token = exchange.a2f[:, match.token], exchange.f2a[match.token].T  # [T, S]
    assert_close(terms["a2f"], -(target * by_frame.log_softmax(1)).sum() / len(labels))
    assert_close(terms["f2a"], -(target * by_token.log_softmax(0)).sum() / len(labels))
    uneven = (outputs[1].frame_logits, exchange.a2f, exchange.f2a.T)
    assert_close(terms["smooth"], sum(smoothness(logits) for logits in uneven))


@pytest.mark.parametrize("blocks", STRINGS)
@pytest.mark.parametrize("labels", ODD)
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
