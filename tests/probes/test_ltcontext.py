"""LTContext and LT-Causal equal the official numbers; LT-Causal's future changes nothing."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from safetensors import safe_open
from torch import Tensor

from pjepa.probes.base.trained import Task
from pjepa.probes.ltcausal.config import LTCausalConfig
from pjepa.probes.ltcausal.probe import LTCausal, segment_order
from pjepa.probes.ltcontext.attention import dropped
from pjepa.probes.ltcontext.config import LTContextConfig
from pjepa.probes.ltcontext.probe import LTContext, loss_terms, official_weights
from pjepa.ui.console import InputError

GOLDEN = Path(__file__).parents[1] / "golden" / "tas"
FILES = ("ltc_red1_dil4", "ltc_red2_dil2")
RELEASE = GOLDEN.parent / "pjepa" / "lt_causal_release.safetensors"
WIDTH, CLASSES = 6, 4
LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=7)  # of a take's segments
NO_DROPOUT = dict.fromkeys(
    ("dropout", "channel_masking", "attention_dropout", "output_dropout"), 0.0
)
SMALL = LTContextConfig(stages=2, layers=2, width=8, window=4, stride=3, dilation=2)
OURS = {
    "NUM_STAGES": "stages", "NUM_LAYERS": "layers", "MODEL_DIM": "width", "RED": "reduction",
    "W": "window", "G": "stride", "DIL": "dilation", "HEADS": "heads",
}  # fmt: skip
THEIRS = {
    "stages": "num_stages", "layers": "num_layers", "width": "model_dim",
    "window": "windowed_attn_w", "stride": "long_term_attn_g", "dilation": "conv_dilation_factor",
    "reduction": "dim_reduction", "heads": "num_attn_heads", "smoothing": "mse_loss_weight",
    "clip": "mse_loss_clip_val",
}  # fmt: skip


def golden(file: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and config of a golden file."""
    with safe_open(GOLDEN / f"{file}.safetensors", "pt") as stored:
        tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        return tensors, json.loads(stored.metadata()["config"])


def golden_model(file: str, kind: type[LTContext] = LTContext) -> LTContext:
    """Our model with the golden weights and no dropout."""
    tensors, theirs = golden(file)
    values = {ours: theirs[name] for name, ours in OURS.items()} | NO_DROPOUT
    config = LTCausalConfig(**values) if kind is LTCausal else LTContextConfig(**values)
    model = kind(config, Task(theirs["INPUT_DIM"], theirs["NUM_CLASSES"]))  # type: ignore[arg-type]
    state = {k.removeprefix("state."): v for k, v in tensors.items() if k.startswith("state.")}
    model.load_state_dict(official_weights(state))
    return model


def released(case: str) -> tuple[LTCausal, dict[str, Tensor]]:
    """Our model with the release's weights, and the tensors of a case."""
    with safe_open(RELEASE, "pt") as stored:
        names = [name for name in stored.keys() if name.startswith(case)]  # noqa: SIM118
        tensors = {name.removeprefix(f"{case}."): stored.get_tensor(name) for name in names}
        theirs = json.loads(stored.metadata()[case])
    blocks = theirs["causal_attention_mode"] == "block_causal"
    config = LTCausalConfig(
        kind="release",
        instance_norm=not theirs["use_instance_norm"],  # their flag acts inverted
        block=theirs["causal_block_size"] if blocks else None,
        **{ours: theirs[name] for ours, name in THEIRS.items()},
    )
    model = LTCausal(config, Task(tensors["features"].shape[2], tensors["logits"].shape[2])).eval()
    state = {k.removeprefix("sd."): v for k, v in tensors.items() if k.startswith("sd.")}
    model.load_state_dict(official_weights(state))
    return model, tensors


def small_model(seed: int = 0, **options: Any) -> LTCausal:
    sizes = {"stages": 3, "layers": 3, "width": 16, "window": 8, "stride": 5, "heads": 2}
    torch.manual_seed(seed)
    config = LTCausalConfig(**{**sizes, **NO_DROPOUT, **options})
    return LTCausal(config, Task(WIDTH, CLASSES)).eval()


def ids(lengths: list[int]) -> Tensor:
    """c(i) of segments of these lengths."""
    return torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))


def random_take(length: int, width: int, seed: int) -> Tensor:
    """Features [T, D]."""
    return torch.randn(length, width, generator=torch.Generator().manual_seed(seed))


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


@pytest.mark.parametrize("file", FILES)
def test_ltcausal_equals_the_derived_numbers(file: str) -> None:
    tensors, _ = golden(f"ltcausal_derived_{file}")
    features, segments = golden(file)[0]["a.input"][0].T, tensors["segment_id"]
    model = golden_model(file, LTCausal)
    for name, end in (("full", 53), ("prefix11", 11), ("prefix28", 28), ("prefix37", 37)):
        found = torch.stack(model(features[:end], segments[:end])).transpose(1, 2)
        torch.testing.assert_close(found, tensors[f"{name}.logits"][:, 0], atol=2e-5, rtol=0)


@settings(max_examples=25, deadline=None)
@given(lengths=LENGTHS, seed=st.integers(0, 99), size=st.sampled_from([1.0, 1e3]))
def test_the_future_changes_no_bit_of_the_past(lengths: list[int], seed: int, size: float) -> None:
    model, segments = small_model(seed), ids(lengths)
    features = random_take(len(segments), WIDTH, seed)
    whole = model(features, segments)
    for segment in range(len(lengths) - 1):
        end = sum(lengths[: segment + 1])
        other, rest = features.clone(), len(segments) - end
        other[end:] = size * random_take(rest, WIDTH, seed + 1000)
        changed = segments.clone()
        changed[end:] = torch.arange(rest) // 3 + segment + 1  # later boundaries are future, too
        for ours, theirs in zip(whole, model(other, changed), strict=True):
            assert torch.equal(ours[:end], theirs[:end])
            assert not torch.equal(ours[end:], theirs[end:])


def test_a_gap_is_a_segment_of_ltcausal() -> None:
    given = torch.tensor([[-1, -1, 4, 4, -1, 9, -1]])
    assert segment_order(given).tolist() == [[0, 0, 1, 1, 2, 3, 4]]
    model, features = small_model(), random_take(7, WIDTH, 0)
    assert torch.equal(
        model.predict(features, given[0]), model.predict(features, segment_order(given)[0])
    )


def test_ltcausal_without_segments_is_named() -> None:
    model, features = small_model(), random_take(9, WIDTH, 0)
    with pytest.raises(InputError, match="needs the segments"):
        model(features)
    with pytest.raises(InputError, match="no annotated segment"):
        model(features, torch.full((9,), -1))
    with pytest.raises(InputError, match=r"segments are \(8,\) for 9 frames"):
        model(features, torch.zeros(8))


@pytest.mark.parametrize("case", ["segment_instnorm", "block_identity"])
def test_ltcausal_equals_the_release(case: str) -> None:
    model, tensors = released(case)
    segments = torch.full(tensors["features"].shape[:2], -1)
    for row, lengths in zip(segments, tensors["segment_lengths"], strict=True):
        row[: int(lengths.sum())] = ids(lengths.tolist())
    with torch.no_grad():
        logits = model(tensors["features"], segments, tensors["valid"])
        loss = model.loss(logits, tensors["targets"].where(tensors["targets"] >= 0, -1))
    found = torch.stack(logits).transpose(2, 3)
    torch.testing.assert_close(found, tensors["logits"], atol=2e-5, rtol=0)
    torch.testing.assert_close(loss[None], tensors["loss"], atol=1e-5, rtol=0)


def test_the_norm_decides_whether_the_release_is_causal() -> None:
    segments, features = ids([9, 8]), random_take(17, WIDTH, 0)
    for norm in (True, False):
        model = small_model(kind="release", instance_norm=norm)
        whole, prefix = model.predict(features, segments), model.predict(features[:9], segments[:9])
        assert torch.allclose(whole[:9], prefix, atol=1e-6) is not norm
        assert model.sight.to == ("take" if norm else "segment")
    with pytest.raises(ValidationError, match="only kind release may have it"):
        LTCausalConfig(instance_norm=True)
    assert LTCausalConfig(kind="release").normalised
    assert not LTCausalConfig().normalised
