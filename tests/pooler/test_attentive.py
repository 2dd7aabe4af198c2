"""The building blocks equal V-JEPA's attentive pooler and classifier (golden vectors)."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from pjepa.pooler.action import AttentiveClassifier, AttentivePooler

FILE = Path(__file__).parents[1] / "golden/vjepa21/pooler.safetensors"
GOLDEN = load_file(FILE)
with safe_open(FILE, "pt") as opened:
    CASES = json.loads(opened.metadata()["cases"])
del CASES["pool_d2_incomplete"]  # a cross-attention without its block, which the paper has not


def built(case: str) -> nn.Module:
    """The module of a golden case with its weights; a missing or extra key is an error."""
    sizes = CASES[case]["kw"]
    width, heads, depth = sizes["embed_dim"], sizes["num_heads"], sizes["depth"]
    model: nn.Module
    if "num_classes" in sizes:
        model = AttentiveClassifier(width, heads, depth, sizes["num_classes"])
    else:
        model = AttentivePooler(sizes["num_queries"], width, heads, depth)
    prefix = f"{case}/state/"
    state = {k.removeprefix(prefix): v for k, v in GOLDEN.items() if k.startswith(prefix)}
    model.load_state_dict(state, strict=True)
    return model.eval()


@torch.no_grad()
@pytest.mark.parametrize("case", CASES)
def test_equals_official(case: str) -> None:
    out = built(case)(GOLDEN[f"{case}/input"])
    assert out.shape == GOLDEN[f"{case}/out"].shape
    assert (out - GOLDEN[f"{case}/out"]).abs().max() <= 1e-5


@torch.no_grad()
@pytest.mark.parametrize("case", CASES)
def test_padding_is_not_seen(case: str) -> None:
    """Padded tokens of any value change nothing."""
    model, x = built(case), GOLDEN[f"{case}/input"]
    padded = torch.cat([x, torch.full((2, 5, 16), 1e3)], dim=1)
    real = torch.arange(29).expand(2, -1) < 24
    assert (model(padded, real) - GOLDEN[f"{case}/out"]).abs().max() <= 1e-5
    assert (model(padded) - GOLDEN[f"{case}/out"]).abs().max() > 1e-2


def test_initial_weights_follow_the_official_rule() -> None:
    torch.manual_seed(0)
    model = AttentivePooler(4, 256, 4, depth=4)
    spread = {name: float(value.detach().std()) for name, value in model.named_parameters()}
    assert spread["query_tokens"] == pytest.approx(0.02, rel=0.1)
    for block in range(3):
        for name in ("attn.proj", "mlp.fc2"):
            expected = 0.02 / (2 * (block + 1)) ** 0.5
            assert spread[f"blocks.{block}.{name}.weight"] == pytest.approx(expected, rel=0.05)
    last = spread["cross_attention_block.mlp.fc2.weight"]
    assert last == pytest.approx(0.02 / 6**0.5, rel=0.05)
    biases: list[Tensor] = [v for n, v in model.named_parameters() if n.endswith("bias")]
    assert all(not bias.any() for bias in biases)
