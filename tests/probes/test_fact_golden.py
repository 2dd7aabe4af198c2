"""FACT equals the official numbers."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from pjepa.probes.base.trained import Task
from pjepa.probes.fact.blocks import BlockOutput, Exchange
from pjepa.probes.fact.config import FactConfig
from pjepa.probes.fact.losses import block_loss, smoothness, soft_iou
from pjepa.probes.fact.probe import Fact, merged_probability
from tests.probes.fact_models import (
    GOLDEN,
    INFO,
    OFFICIAL,
    ROUNDING,
    official,
)


def test_official_logits() -> None:
    outputs = official()(OFFICIAL["input"])
    for index, output in enumerate(outputs):
        pairs = [("frame_clogit", output.frame_logits), ("action_clogit", output.token_logits)]
        pairs += [("frame_feature", output.frames), ("action_feature", output.tokens)]
        if output.exchange is not None:
            assert output.exchange.runs is not None
            assert output.exchange.runs.lengths.equal(OFFICIAL[f"block{index}.seg_lens"])
            pairs.append(("seg_clogit", output.exchange.logits))
        for name, ours in pairs:
            expected = OFFICIAL[f"block{index}.{name}"].squeeze(1)
            assert_close(ours, expected, atol=2e-5, rtol=0, msg=f"block {index} {name}")


def test_official_attention() -> None:
    for index, output in enumerate(official()(OFFICIAL["input"])):
        if output.exchange is None:
            continue
        for name, ours in (("f2a", output.exchange.f2a), ("a2f", output.exchange.a2f)):
            expected = OFFICIAL[f"block{index}.{name}_attn_logit"][0]
            assert_close(ours, expected, atol=ROUNDING, rtol=0, msg=f"block {index} {name}")
        expected = OFFICIAL[f"block{index}.a2f_attn"][0]
        assert_close(output.exchange.frame_attention(), expected, atol=2e-5, rtol=0)


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
