"""What is float32 and what bf16 in a training step on CUDA, and the paper's sizes, without a GPU.

Fake tensors have a device and a type but no values; autocast treats them as it treats CUDA's.
"""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pjepa.model import flex
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import Attention, Block, ProcedureEncoder
from pjepa.model.neighbours import NeighbourHeads
from pjepa.model.objective import Jepa
from pjepa.model.predictor import Predictor
from pjepa.pretrain.config import PjepaConfig
from pjepa.tools.selftest import D_IN, miniature
from pjepa.ui import transfer
from tests.pretend.device import dense_flex
from tests.pretrain.conftest import packed

NORMS = ("none", "standardize", "take_center", "causal_center")


def seen_dtypes(model):
    """The types that enter blocks, attention's products and norms, by name, as they are met."""
    found = {}

    def note(kind):
        def hook(module, inputs, output):
            found.setdefault(kind, set()).add((inputs[0].dtype, output.dtype))

        return hook

    for part in (model.student, model.teacher, model.predictor):
        part.norm.register_forward_hook(note("last norm"))
        for module in part.modules():
            if isinstance(module, Block):
                module.register_forward_hook(note("residual stream"))
            if isinstance(module, Attention):
                module.qkv.register_forward_hook(note("projection"))
    for encoder in (model.student, model.teacher):
        encoder.proj.register_forward_hook(note("input projection"))
    return found


def example(places):
    """Two takes of noise as the loop packs them."""
    takes = [miniature(number) for number in range(2)]
    config = PjepaConfig(neighbours=places)
    return packed(takes, config)


@pytest.mark.parametrize("norm", NORMS)
def test_only_products_are_bf16(norm, monkeypatch):
    single, half, attended = torch.float32, torch.bfloat16, set()

    def attention(q, k, v, block_mask, scale):
        attended.add((q.dtype, k.dtype, v.dtype))
        return dense_flex(q, k, v, block_mask, scale)

    monkeypatch.setattr(flex, "compiled", lambda: attention)
    monkeypatch.setattr(transfer, "pinned", lambda x, device: x)  # takes a driver
    monkeypatch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda *_: True)
    config = EncoderConfig(
        d_in=D_IN, width=32, depth=2, heads=2, attention="clip_causal", input_norm=norm
    )
    heads = NeighbourHeads(config.width, D_IN, (-1, 1))
    model = Jepa(ProcedureEncoder(config), Predictor(config, 1, 2), heads)
    batch = example(places=(-1, 1))
    found = seen_dtypes(model)
    with FakeTensorMode(allow_non_fake_inputs=True):
        model.to("cuda")
        there = batch.to("cuda")
        with torch.autocast("cuda", torch.bfloat16):
            normal = model.student.normalised(there.features, there.layout)
            terms = model(there, model.counts(there))
    assert normal.dtype == single
    assert found["residual stream"] == {(single, single)}
    assert found["last norm"] == {(single, single)}
    assert found["input projection"] == {(single, half)}
    assert found["projection"] == {(single, half)}
    assert attended == {(half, half, half)}
    assert (terms.eq2.dtype, terms.neighbour.dtype, terms.targets.dtype) == (single,) * 3
    assert {value.dtype for value in model.parameters()} == {single}
