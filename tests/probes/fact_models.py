"""Small FACT models and takes that its tests share."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from pjepa.probes.base.trained import Task
from pjepa.probes.fact.config import FactConfig
from pjepa.probes.fact.probe import Fact

GOLDEN = Path(__file__).parents[1] / "golden" / "tas"
with safe_open(GOLDEN / "fact_iUUU_ego.safetensors", "pt") as file:
    INFO = json.loads(file.metadata()["info"])
    OFFICIAL = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
SMALL: dict[str, Any] = {
    "tokens": 12, "hidden": 32, "action_dim": 16, "frame_dim": 16, "action_heads": 4,
    "action_ffn": 24, "action_layers": 2, "frame_layers": 3, "update_frame_layers": 3,
    "null_weight": INFO["nullw"],
}  # fmt: skip
WIDTH, CLASSES = 20, 6
ROUNDING = 5e-5  # the official float32 numbers are themselves 3e-5 off the exact (float64) ones
STRINGS = ("iU", "iu", "iuU", "iUu")


def small(background: int | None = 0, **changes: Any) -> Fact:
    return Fact(FactConfig(**{**SMALL, **changes}), Task(WIDTH, CLASSES, background))


def official(**changes: Any) -> Fact:
    model = small(**changes)
    state = {k.removeprefix("state."): v for k, v in OFFICIAL.items() if k.startswith("state.")}
    model.load_state_dict(state)
    return model.eval()


def some_take(frames: int = 40, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Features and labels of segments of different lengths: equal ones could swap their tokens."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (13,), generator=random).repeat_interleave(torch.arange(1, 14))
    features = torch.randn(frames, WIDTH, generator=random, dtype=torch.float64)
    return features, labels[-frames:]
