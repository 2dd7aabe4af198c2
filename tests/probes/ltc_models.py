"""Golden LTContext models."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

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


def random_take(length: int, width: int, seed: int) -> Tensor:
    """Features [T, D]."""
    return torch.randn(length, width, generator=torch.Generator().manual_seed(seed))
