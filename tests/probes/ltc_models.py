"""Golden LTContext models and a slow, obvious one that masks a T x T matrix."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor
from torch.nn import functional as F

from pjepa.probes.base.trained import Task
from pjepa.probes.ltcausal.config import LTCausalConfig
from pjepa.probes.ltcausal.probe import LTCausal
from pjepa.probes.ltcontext.config import LTContextConfig
from pjepa.probes.ltcontext.probe import LTContext, official_weights

GOLDEN = Path(__file__).parents[1] / "golden" / "tas"
FILES = ("ltc_red1_dil4", "ltc_red2_dil2")
NO_DROPOUT = dict.fromkeys(
    ("dropout", "channel_masking", "attention_dropout", "output_dropout"), 0.0
)


def golden(file: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and config of a golden file."""
    with safe_open(GOLDEN / f"{file}.safetensors", "pt") as stored:
        tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
        return tensors, json.loads(stored.metadata()["config"])


def golden_model(file: str, causal: bool = False, **settings: Any) -> LTContext:
    """Our model with the golden weights and no dropout."""
    tensors, theirs = golden(file)
    names = {
        "stages": "NUM_STAGES", "layers": "NUM_LAYERS", "width": "MODEL_DIM", "reduction": "RED",
        "window": "W", "stride": "G", "dilation": "DIL", "heads": "HEADS",
    }  # fmt: skip
    values = {ours: theirs[name] for ours, name in names.items()} | NO_DROPOUT | settings
    task = Task(theirs["INPUT_DIM"], theirs["NUM_CLASSES"])
    model: LTContext
    if causal:
        model = LTCausal(LTCausalConfig(**values), task)
    else:
        model = LTContext(LTContextConfig(**values), task)
    state = {k.removeprefix("state."): v for k, v in tensors.items() if k.startswith("state.")}
    model.load_state_dict(official_weights(state))
    return model


def obvious_attention(module: Any, x: Tensor, values: Tensor | None, allowed: Tensor) -> Tensor:
    """`x` plus attention under a boolean T x T matrix, for one take [T, d]."""
    seen = x
    if module.config.normalised:
        seen = (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt()
    values = seen if values is None else values

    def heads(y: Tensor, part: int) -> Tensor:
        projected = F.linear(y, module.qkv.weight, module.qkv.bias).chunk(3, 1)[part]
        return projected.unflatten(1, (module.config.heads, -1)).transpose(0, 1)

    keys = heads(values if module.config.release else seen, 1)
    found = F.scaled_dot_product_attention(heads(seen, 0), keys, heads(values, 2), allowed)
    return x + module.proj(F.gelu(found.transpose(0, 1).flatten(1)))


def obvious_logits(model: LTCausal, x: Tensor, segment: Tensor) -> list[Tensor]:
    """The stages' logits of one take [T, D], without dropout."""
    config, i = model.config, torch.arange(len(x))
    base = i[:, None] // config.window * config.window
    near = (i >= base - config.window // 2) & (i < base + config.window + config.window // 2)
    if config.release:
        near = (i - i[:, None]).abs() <= config.window
    far = i % config.stride == i[:, None] % config.stride
    past = segment <= segment[:, None]
    logits: list[Tensor] = []
    values = None
    for stage in [model.stage1, *model.stages]:
        f = stage.input_proj(x)
        for number, layer in enumerate(stage.layers):
            k, conv = config.dilation**number, layer.dilated_conv
            padded = F.pad(f.T[None], (2 * k, 0))
            o = F.gelu(F.conv1d(padded, conv.weight, conv.bias, dilation=k))[0].T
            for attention, seen in ((layer.windowed_attn, near), (layer.ltc_attn, far)):
                o = obvious_attention(attention, o, values, seen & past)
            f = f + layer.out_linear(o)
        logits.append(stage.out_proj(f))
        x, values = logits[-1].softmax(1), model.dim_reduction(f) if values is None else f
    return logits


def random_take(length: int, width: int, seed: int) -> Tensor:
    """Features [T, D]."""
    return torch.randn(length, width, generator=torch.Generator().manual_seed(seed))
