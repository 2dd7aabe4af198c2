"""LT-Causal: equal to golden numbers; the future changes nothing."""

import json
from typing import Any

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
from pjepa.probes.ltcontext.probe import official_weights
from pjepa.ui.console import InputError
from tests.probes.ltc_models import (
    FILES,
    GOLDEN,
    NO_DROPOUT,
    golden,
    golden_model,
    random_take,
)

WIDTH, CLASSES = 6, 4
RELEASE = GOLDEN.parent / "pjepa" / "lt_causal_release.safetensors"
LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=7)  # of a take's segments


def small_model(seed: int = 0, **options: Any) -> LTCausal:
    sizes = {"stages": 3, "layers": 3, "width": 16, "window": 8, "stride": 5, "heads": 2}
    torch.manual_seed(seed)
    config = LTCausalConfig(**{**sizes, **NO_DROPOUT, **options})
    return LTCausal(config, Task(WIDTH, CLASSES)).eval()


def ids(lengths: list[int]) -> Tensor:
    """c(i) of segments of these lengths."""
    return torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))


THEIRS = {
    "stages": "num_stages", "layers": "num_layers", "width": "model_dim",
    "window": "windowed_attn_w", "stride": "long_term_attn_g", "dilation": "conv_dilation_factor",
    "reduction": "dim_reduction", "heads": "num_attn_heads", "smoothing": "mse_loss_weight",
    "clip": "mse_loss_clip_val",
}  # fmt: skip


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


@pytest.mark.parametrize("file", FILES)
def test_equals_the_derived_golden(file: str) -> None:
    tensors, _ = golden(f"ltcausal_derived_{file}")
    features, segments = golden(file)[0]["a.input"][0].T, tensors["segment_id"]
    model = golden_model(file, causal=True)
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


def test_a_gap_is_a_segment_in_its_place() -> None:
    given = torch.tensor([[-1, -1, 4, 4, -1, 9, -1]])
    assert segment_order(given).tolist() == [[0, 0, 1, 1, 2, 3, 4]]
    model, features = small_model(), random_take(7, WIDTH, 0)
    assert torch.equal(
        model.predict(features, given[0]), model.predict(features, segment_order(given)[0])
    )


def test_missing_segments_are_named() -> None:
    model, features = small_model(), random_take(9, WIDTH, 0)
    with pytest.raises(InputError, match="needs the segments"):
        model(features)
    with pytest.raises(InputError, match="no annotated segment"):
        model(features, torch.full((9,), -1))
    with pytest.raises(InputError, match=r"segments are \(8,\) for 9 frames"):
        model(features, torch.zeros(8))


@pytest.mark.parametrize("case", ["segment_instnorm", "block_identity"])
def test_logits_and_loss_equal_the_release(case: str) -> None:
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


def test_the_norm_decides_whether_it_is_causal() -> None:
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
