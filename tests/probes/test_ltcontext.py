"""LTContext equals the official model, its losses and its first steps of training."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from pjepa.probes.base.trained import Task
from pjepa.probes.ltcausal.config import LTCausalConfig
from pjepa.probes.ltcausal.probe import LTCausal
from pjepa.probes.ltcontext.attention import dropped
from pjepa.probes.ltcontext.config import LTContextConfig
from pjepa.probes.ltcontext.probe import LTContext, loss_terms
from pjepa.ui.console import InputError
from tests.probes.ltc_models import FILES, GOLDEN, NO_DROPOUT, golden, golden_model, random_take

SMALL = LTContextConfig(stages=2, layers=2, width=8, window=4, stride=3, dilation=2)


@pytest.mark.parametrize("case", ["a", "b"])
@pytest.mark.parametrize("file", FILES)
def test_logits_loss_and_gradients_equal_the_official_ones(file: str, case: str) -> None:
    tensors, _ = golden(file)
    model, mask = golden_model(file), tensors[f"{case}.mask"][:, 0]
    valid = None if bool(mask.all()) else mask  # frames that are no padding
    logits = model(tensors[f"{case}.input"].transpose(1, 2), valid=valid)
    found = torch.stack(logits).transpose(2, 3)
    torch.testing.assert_close(found, tensors[f"{case}.logits"], atol=2e-5, rtol=0)
    assert not found.masked_fill(mask[None, :, None], 0).any()
    labels = tensors[f"{case}.target"]
    labels = labels.where(labels >= 0, -1)
    terms = [torch.stack(loss_terms(stage, labels, 16.0)) for stage in logits]
    loss = model.loss(logits, labels)
    losses = torch.cat([loss[None], torch.stack(terms).sum(0)])
    torch.testing.assert_close(losses, tensors[f"{case}.loss"], atol=1e-5, rtol=0)
    loss.backward()
    for name in ("stage1.input_proj.weight", "stages.1.out_proj.weight"):
        expected = tensors[f"{case}.grad.{name}"][..., 0]
        torch.testing.assert_close(model.get_parameter(name).grad, expected, atol=2e-5, rtol=0)


@pytest.mark.parametrize("file", FILES)
def test_first_training_steps_equal_the_official_ones(file: str) -> None:
    tensors, _ = golden(file)
    model = golden_model(file).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2.5e-4, weight_decay=0)
    losses = []
    for _ in range(8):
        optimizer.zero_grad()
        loss = model.loss(model(tensors["a.input"][0].T), tensors["a.target"][0])
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    np.testing.assert_allclose(losses, tensors["c.train_losses"].numpy(), atol=1e-4)


def test_clipped_smoothing_equals_the_official_one() -> None:
    stored = np.load(GOLDEN / "smooth_and_merge.npz")
    logits = torch.from_numpy(stored["smooth.logits_BCT"]).transpose(1, 2).requires_grad_()
    entropy, smoothing = loss_terms(logits, torch.zeros(2, 12, dtype=torch.long), 16.0)
    assert entropy.item() == pytest.approx(stored["smooth.ltc_ce_target0"].item(), abs=1e-5)
    assert smoothing.item() == pytest.approx(stored["smooth.ltc_value"].item(), abs=1e-5)
    (grad,) = torch.autograd.grad(smoothing, logits)
    expected = torch.from_numpy(stored["smooth.ltc_grad_BCT"]).transpose(1, 2)
    torch.testing.assert_close(grad, expected, atol=1e-6, rtol=0)


# the official code's sizes
OFFICIAL = LTContextConfig(width=64, reduction=2, window=64, dilation=2)


@pytest.mark.parametrize(
    ("kind", "config", "classes", "parameters"),
    [
        (LTContext, LTContextConfig(), 202, 5_211_816),
        (LTContext, OFFICIAL, 202, 712_008),
        (LTCausal, LTCausalConfig(), 116, 1_505_948),
    ],
)
def test_presets_have_the_published_number_of_parameters(
    kind: type[LTContext], config: LTContextConfig, classes: int, parameters: int
) -> None:
    with torch.device("meta"):
        model = kind(config, Task(2048, classes))  # type: ignore[arg-type]
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_dropout_is_on_in_training_alone_and_comes_from_the_seed() -> None:
    model, features = LTContext(SMALL, Task(6, 3)), random_take(20, 6, 0)
    torch.manual_seed(0)
    once = model(features)[-1]
    assert not torch.equal(once, model(features)[-1])
    torch.manual_seed(0)
    assert torch.equal(once, model(features)[-1])
    found = model.eval().predict(features)
    torch.testing.assert_close(found, model(features)[-1].softmax(1), atol=0, rtol=0)


def test_dropout_has_torchs_share_and_scale() -> None:
    x = torch.ones(1001, 99, requires_grad=True)
    for p in (0.1, 0.5):
        y = dropped(x, p)
        assert (y == 0).float().mean().item() == pytest.approx(p, abs=0.01)
        torch.testing.assert_close(y[y != 0], torch.full_like(y[y != 0], 1 / (1 - p)))
        assert torch.equal(*torch.autograd.grad(y.sum(), x), y.detach())
    assert dropped(x, 0.0) is x


@pytest.mark.parametrize("frames", [9, 1])
def test_unknown_frames_and_short_takes_have_a_finite_loss(frames: int) -> None:
    model = LTContext(SMALL.model_copy(update=NO_DROPOUT), Task(6, 3))
    loss = model.loss(model(random_take(frames, 6, 0)), torch.full((frames,), -1))
    loss.backward()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_bad_input_is_named() -> None:
    model = LTContext(SMALL, Task(6, 3))
    for shape in ((9, 5), (0, 6), (6,), (1, 0, 6)):
        with pytest.raises(InputError, match="expected \\[frames, 6\\]"):
            model(torch.zeros(shape))
    with pytest.raises(InputError, match="label 3 is not one of 3 classes"):
        model.loss(model(torch.zeros(4, 6)), torch.tensor([0, 1, 2, 3]))
    with pytest.raises(InputError, match="3 labels for 4 frames"):
        model.loss(model(torch.zeros(4, 6)), torch.tensor([0, 1, 2]))
    for wrong in ({"window": 7}, {"heads": 3}, {"width": 8, "reduction": 8}, {"layer": 3}):
        with pytest.raises(ValidationError):
            LTContextConfig(**wrong)
