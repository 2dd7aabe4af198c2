"""What is float32 and what bf16 in a training step on CUDA, and the paper's sizes, without a GPU.

Fake tensors have a device and a type but no values; autocast treats them as it treats CUDA's.
"""

from collections import defaultdict

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pjepa.model import flex
from pjepa.model.encoder import Attention, Block
from pjepa.pretrain.setup import measure, new_model
from pjepa.ui import transfer
from tests.pretend.device import dense_flex
from tests.pretrain.conftest import changed, packed


def seen_dtypes(model):
    """The types that enter and leave parts of the model, by name, as they are met."""
    seen = defaultdict(set)

    def note(module, name):
        module.register_forward_hook(
            lambda _, inputs, output: seen[name].add((inputs[0].dtype, output.dtype))
        )

    for network in (model.student, model.teacher, model.predictor):
        note(network.norm, "last norm")
        for module in network.modules():
            if isinstance(module, Block):
                note(module, "residual stream")
            if isinstance(module, Attention):
                note(module.qkv, "projection")
    for encoder in (model.student, model.teacher):
        note(encoder.proj, "input projection")
    return seen


@pytest.mark.parametrize("norm", ["none", "standardize", "take_center", "causal_center"])
def test_only_products_are_bf16(norm, takes, config, monkeypatch):
    single, half, attended = torch.float32, torch.bfloat16, set()

    def attention(q, k, v, block_mask, scale):
        attended.add((q.dtype, k.dtype, v.dtype))
        return dense_flex(q, k, v, block_mask, scale)

    monkeypatch.setattr(flex, "compiled", lambda: attention)
    monkeypatch.setattr(transfer, "pinned", lambda x, device: x)  # takes a driver
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *_: True)
    config = changed(config, width=32, depth=2, input_norm=norm)
    model, batch = new_model(config, takes, measure(takes)), packed(takes, config)
    seen = seen_dtypes(model)
    with FakeTensorMode(allow_non_fake_inputs=True):
        model.to("cuda")
        there = batch.to("cuda")
        with torch.autocast("cuda", torch.bfloat16):
            inputs = model.inputs(there)
            terms = model(there, model.counts(there))
    assert inputs.dtype == single
    assert seen["residual stream"] == seen["last norm"] == {(single, single)}
    assert seen["input projection"] == seen["projection"] == {(single, half)}
    assert attended == {(half, half, half)}
    assert {terms.eq2.dtype, terms.targets.dtype} == {single}
    assert terms.neighbour is None or terms.neighbour.dtype == single
    assert {value.dtype for value in model.parameters()} == {single}
