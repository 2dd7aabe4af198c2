"""The procedure encoder f: tokens in, contextualised tokens out (paper Sec. 3.2).

    z = LN(blocks(project(normalise(x)))),  attention under c(j) <= c(i) (Eq. 3), RoPE over (c, r)

The student and the teacher are this module; at inference it is all that remains.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pjepa.errors import InputError
from pjepa.model.attention import attention_plan
from pjepa.model.blocks import Block
from pjepa.model.centering import Style, take_mean, visible_style
from pjepa.model.layout import Layout, layout_of_segments
from pjepa.model.rope import rope_table
from pjepa.work import whole_file, write_json


class EncoderConfig(BaseModel):
    """All that is needed to build the encoder again; stored beside its weights."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    d_in: int
    width: int
    depth: int
    heads: int
    mlp_ratio: float = 4.0
    dropout: float = 0.0
    attention: Literal["clip_causal", "block_causal", "token_causal", "bidirectional"]
    block: int = 64
    positions: Literal["2d", "1d", "none"] = "2d"
    rope: Literal["paired", "tiled"] = "paired"
    rope_base: float = 10000.0
    project: Literal["auto", "always"] = "auto"
    input_norm: Literal["none", "standardize", "take_center", "causal_center"] = "none"
    style_rank: int = 0
    style_look: float = 12.0


class ProcedureEncoder(nn.Module):
    """f_phi of Eq. (2): LayerNorm-linear projection if d != d_in, pre-norm blocks, final norm."""

    mean: Tensor
    std: Tensor
    style_read: Tensor
    style_write: Tensor
    style_strength: Tensor

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("mean", torch.zeros(config.d_in))
        self.register_buffer("std", torch.ones(config.d_in))
        self.register_buffer("style_read", torch.zeros(config.d_in, config.style_rank))
        self.register_buffer("style_write", torch.zeros(config.style_rank, config.d_in))
        self.register_buffer("style_strength", torch.zeros(config.style_rank))
        self.proj = (
            nn.Sequential(nn.LayerNorm(config.d_in), nn.Linear(config.d_in, config.width))
            if config.d_in != config.width or config.project == "always"
            else nn.Identity()
        )
        self.blocks = nn.ModuleList(
            Block(config.width, config.heads, config.mlp_ratio, config.dropout)
            for _ in range(config.depth)
        )
        self.norm = nn.LayerNorm(config.width)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """Contextualised tokens [N, d] of the visible tokens x [N, d_in] at `layout`."""
        config = self.config
        block = layout.block(config.attention, config.block)
        head_dim = config.width // config.heads
        table = rope_table(layout, head_dim, config.positions, config.rope, config.rope_base)
        plan = attention_plan(layout, block)
        x = self.drop(self.proj(self.normalised(x, layout, block)))  # [N, d]
        for layer in self.blocks:
            x = layer(x, table, plan)
        return self.norm(x)

    def normalised(self, x: Tensor, layout: Layout, block: Tensor) -> Tensor:
        """x after `input_norm`; statistics of a take come from visible tokens only."""
        kind = self.config.input_norm
        if kind == "none":
            return x
        x = (x - self.mean) / self.std
        if kind == "take_center":
            return x - take_mean(x, layout)
        if kind == "causal_center":
            style = Style(self.style_read, self.style_write, self.style_strength)
            return x - visible_style(x, layout, block, style, self.config.style_look)
        return x

    def copy_statistics(self, other: ProcedureEncoder) -> None:
        """Takes over what was measured on the training stream; no learned weight."""
        own = dict(self.named_buffers())
        for name, value in other.named_buffers():
            own[name].copy_(value)

    @torch.inference_mode()
    def encode(
        self, tokens: np.ndarray | Tensor, segment_lengths: Sequence[int] | None = None
    ) -> Tensor:
        """One take: tokens [T, d_in] -> features [T, d]. Clip-causal needs its segment lengths."""
        x = torch.as_tensor(tokens, dtype=torch.float32, device=self.mean.device)
        if x.ndim != 2 or x.shape[1] != self.config.d_in:
            raise InputError(
                f"tokens are {tuple(x.shape)}, this encoder takes [T, {self.config.d_in}]"
            )
        needs_segments = self.config.attention == "clip_causal" or self.config.positions == "2d"
        if segment_lengths is None and needs_segments:
            raise InputError(
                "this encoder was trained on segments: pass segment_lengths, "
                "or use one trained with attention block_causal and positions 1d"
            )
        lengths = list(segment_lengths) if segment_lengths is not None else [len(x)]
        if sum(lengths) != len(x):
            raise InputError(f"segment lengths sum to {sum(lengths)}, there are {len(x)} tokens")
        return self(x, layout_of_segments([lengths]).to(x.device))

    def save_pretrained(self, folder: str | Path) -> None:
        """Writes model.safetensors and config.json."""
        folder = Path(folder)
        with whole_file(folder / "model.safetensors") as partial:
            save_file({k: v.contiguous().cpu() for k, v in self.state_dict().items()}, partial)
        write_json(folder / "config.json", self.config.model_dump())

    @classmethod
    def from_pretrained(cls, name: str | Path, device: str = "cpu") -> ProcedureEncoder:
        """Loads a folder written by `save_pretrained`, or a hub id."""
        folder = Path(name)
        if not folder.is_dir():
            folder = _hub_folder(str(name))
        config = EncoderConfig.model_validate(json.loads((folder / "config.json").read_text()))
        encoder = cls(config)
        encoder.load_state_dict(load_file(folder / "model.safetensors"))
        return encoder.to(device).eval()


def _hub_folder(name: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        found = snapshot_download(name, allow_patterns=["model.safetensors", "config.json"])
    except Exception as error:
        raise InputError(
            f"{name}: neither a folder with model.safetensors and config.json nor a model that "
            f"can be fetched from the hub ({type(error).__name__})"
        ) from None
    return Path(found)
