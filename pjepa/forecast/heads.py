"""The heads H_k of the neighbour term, which predict neighbouring segments from a token.

They are trained by `pjepa/pretrain/neighbours.py` and stored beside an encoder, but are not part of
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import linear

from pjepa.core.files import atomic_file
from pjepa.ui.errors import InputError

HEADS = "neighbours.safetensors"  # beside the encoder's model.safetensors


class NeighbourHeads(nn.Module):
    """H_k: one linear layer per place k, from a feature [d] to a mean normalised token [d_in].

    `spread` [d_in, d_in] is the covariance of those means over the segments of the training takes.
    """

    spread: Tensor

    def __init__(self, width: int, d_in: int, places: Sequence[int]) -> None:
        super().__init__()
        self.places = tuple(places)  # K
        self.at = nn.ModuleDict({str(k): nn.Linear(width, d_in) for k in self.places})
        self.register_buffer("spread", torch.eye(d_in))

    def forward(self, features: Tensor, k: int) -> Tensor:
        """Return the prediction [n, d_in] from features [n, d] for the segment k places away."""
        told: Tensor = self.at[str(k)](features)
        return told.float()

    def everywhere(self, features: Tensor) -> Tensor:
        """Return the predictions [n, K, d_in] for all places, in one matrix product."""
        layers = [cast(nn.Linear, self.at[str(k)]) for k in self.places]
        weight = torch.cat([layer.weight for layer in layers])  # [K d_in, d]
        bias = torch.cat([layer.bias for layer in layers])
        return linear(features, weight, bias).float().unflatten(1, (len(layers), -1))

    def save(self, folder: Path) -> None:
        """Write the heads beside the encoder of a snapshot."""
        tensors = {**self.at.state_dict(), "spread": self.spread}
        with atomic_file(folder / HEADS) as partial:
            save_file({k: v.contiguous().cpu() for k, v in tensors.items()}, partial)

    @classmethod
    def load(cls, folder: Path, device: str = "cpu") -> NeighbourHeads:
        """Read what `save` wrote."""
        path = folder / HEADS
        try:
            tensors = load_file(path)
        except (OSError, SafetensorError) as error:
            raise InputError(
                f"{path}: no neighbour heads ({error}); pretrain with pjepa.neighbours"
            ) from None
        spread = tensors.pop("spread", None)
        if spread is None:
            raise InputError(f"{path}: no `spread`: an older version wrote it; pretrain again")
        places = sorted({int(name.split(".")[0]) for name in tensors})
        d_in, width = tensors[f"{places[0]}.weight"].shape
        heads = cls(width, d_in, places)
        heads.at.load_state_dict(tensors)
        heads.spread.copy_(spread)
        return heads.to(device).eval()
