"""LT-Causal of kind `release` equals the authors' code; without its norm it is causal and streams.

`obvious_logits` is the same model with T x T masks, so that other shapes than the golden ones hold.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from safetensors import safe_open
from torch import Tensor

from pjepa.live.memories import LTCausalMemory
from pjepa.probes.base.trained import Task
from pjepa.probes.ltcausal.config import LTCausalConfig
from pjepa.probes.ltcausal.probe import LTCausal
from pjepa.probes.ltcontext.probe import official_weights
from tests.probes.ltc_models import NO_DROPOUT, obvious_logits, random_take

GOLDEN = Path(__file__).parents[1] / "golden" / "pjepa" / "lt_causal_release.safetensors"
THEIRS = {
    "stages": "num_stages", "layers": "num_layers", "width": "model_dim",
    "window": "windowed_attn_w", "stride": "long_term_attn_g", "dilation": "conv_dilation_factor",
    "reduction": "dim_reduction", "heads": "num_attn_heads", "smoothing": "mse_loss_weight",
    "clip": "mse_loss_clip_val",
}  # fmt: skip


def golden(case: str) -> tuple[LTCausal, dict[str, Tensor]]:
    """Our model with the release's weights, and the tensors of a case."""
    with safe_open(GOLDEN, "pt") as stored:
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


def segments_of(lengths: Tensor, frames: int) -> Tensor:
    """c(i) [B, T] of zero-padded segment lengths [B, S]; padding is -1."""
    found = torch.full((len(lengths), frames), -1)
    for row, sizes in zip(found, lengths, strict=True):
        ids = torch.arange(len(sizes)).repeat_interleave(sizes)
        row[: len(ids)] = ids
    return found


@pytest.mark.parametrize("case", ["segment_instnorm", "block_identity"])
def test_logits_and_loss_equal_the_release(case: str) -> None:
    model, tensors = golden(case)
    segments = segments_of(tensors["segment_lengths"], tensors["features"].shape[1])
    with torch.no_grad():
        logits = model(tensors["features"], segments, tensors["valid"])
        loss = model.loss(logits, tensors["targets"].where(tensors["targets"] >= 0, -1))
    found = torch.stack(logits).transpose(2, 3)
    torch.testing.assert_close(found, tensors["logits"], atol=2e-5, rtol=0)
    torch.testing.assert_close(loss[None], tensors["loss"], atol=1e-5, rtol=0)


def small_model(seed: int = 0, **options: Any) -> LTCausal:
    sizes = {"stages": 3, "layers": 3, "width": 16, "window": 5, "stride": 4, "heads": 2}
    config = LTCausalConfig(kind="release", **{**sizes, **NO_DROPOUT, **options})
    torch.manual_seed(seed)
    return LTCausal(config, Task(6, 4)).eval()


@settings(max_examples=15, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 20), min_size=1, max_size=6),
    window=st.integers(2, 9),
    norm=st.booleans(),
)
def test_equals_the_obvious_model(lengths: list[int], window: int, norm: bool) -> None:
    model = small_model(window, window=window, instance_norm=norm).double()
    segments = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    features = random_take(len(segments), 6, window).double()
    expected = obvious_logits(model, features, segments)
    torch.testing.assert_close(model(features, segments), expected, atol=1e-9, rtol=0)


def test_the_norm_decides_whether_it_is_causal() -> None:
    segments, features = torch.tensor([0] * 9 + [1] * 8), random_take(17, 6, 0)
    for norm in (True, False):
        model = small_model(instance_norm=norm)
        whole, prefix = model.predict(features, segments), model.predict(features[:9], segments[:9])
        assert torch.allclose(whole[:9], prefix, atol=1e-6) is not norm
        section = LTCausalConfig(kind="release", instance_norm=norm)
        assert LTCausal(section, Task(6, 4)).sight.to == ("take" if norm else "segment")


def test_streams_without_its_norm() -> None:
    lengths = [7, 1, 12, 5, 9]
    segments = torch.arange(5).repeat_interleave(torch.tensor(lengths))
    model, features = small_model(instance_norm=False), random_take(34, 6, 1)
    memory, found = LTCausalMemory(model), []
    with torch.inference_mode():
        for part, ids in zip(features.split(lengths), segments.split(lengths), strict=True):
            found.append(memory.probabilities(part, ids, commit=True))
    expected = model.predict(features, segments)
    torch.testing.assert_close(torch.cat(found), expected, atol=1e-5, rtol=0)


def test_the_strict_kind_has_no_norm() -> None:
    with pytest.raises(ValidationError, match="only kind release may have it"):
        LTCausalConfig(instance_norm=True)
    assert LTCausalConfig(kind="release").normalised
    assert not LTCausalConfig().normalised
