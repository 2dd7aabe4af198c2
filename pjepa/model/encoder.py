"""The procedure encoder f: tokens in, contextualised tokens out (paper Sec. 3.2).

    z = LN(blocks(project(normalise(x)))),  attention under c(j) <= c(i) (Eq. 3), RoPE over (c, r)

The student and the teacher are this module; at inference it is all that remains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pjepa.errors import InputError
from pjepa.model.attention import attention_plan
from pjepa.model.blocks import Block, Stack
from pjepa.model.card import model_card
from pjepa.model.centering import Seen, Style, take_mean, visible_style
from pjepa.model.layout import Layout, layout_of_segments
from pjepa.model.rope import Rope, rope_table
from pjepa.runs import runs
from pjepa.streams.found import FoundConfig, FoundParameters
from pjepa.streams.rule import SegmentRule, take_segments
from pjepa.streams.segments import attention_segments
from pjepa.work import read_json, whole_file, write_json

if TYPE_CHECKING:
    from pjepa.features.stream import EncoderStream


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
    segments: Literal["annotated", "fixed", "found", "ruptures"] = "annotated"
    found_tokens: int = 32
    found_max: int = 128
    positions: Literal["2d", "1d", "none"] = "2d"
    rope: Literal["paired", "tiled"] = "paired"
    rope_base: float = 10000.0
    rope_segment: int | None = None
    rope_offset: int | None = None
    project: Literal["auto", "always"] = "auto"
    input_norm: Literal["none", "standardize", "take_center", "causal_center"] = "none"
    style_rank: int = 0
    style_look: float = 12.0

    def rope_layout(self) -> Rope:
        """How queries and keys are turned."""
        return Rope(self.positions, self.rope, self.rope_base, self.rope_segment, self.rope_offset)

    @property
    def uses_segments(self) -> bool:
        """Whether c(i) enters at all: through attention, or through positions."""
        return self.attention == "clip_causal" or self.positions == "2d"


class ProcedureEncoder(nn.Module):
    """f_phi of Eq. (2): LayerNorm-linear projection if d != d_in, pre-norm blocks, final norm."""

    mean: Tensor
    std: Tensor
    style_read: Tensor
    style_write: Tensor
    style_strength: Tensor
    found_threshold: Tensor

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.register_buffer("mean", torch.zeros(config.d_in))
        self.register_buffer("std", torch.ones(config.d_in))
        self.register_buffer("style_read", torch.zeros(config.d_in, config.style_rank))
        self.register_buffer("style_write", torch.zeros(config.style_rank, config.d_in))
        self.register_buffer("style_strength", torch.zeros(config.style_rank))
        self.register_buffer("found_threshold", torch.zeros((), dtype=torch.float64))
        self.proj = (
            nn.Sequential(nn.LayerNorm(config.d_in), nn.Linear(config.d_in, config.width))
            if config.d_in != config.width or config.project == "always"
            else nn.Identity()
        )
        self.blocks = Stack(
            Block(config.width, config.heads, config.mlp_ratio, config.dropout)
            for _ in range(config.depth)
        )
        self.norm = nn.LayerNorm(config.width)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        """Contextualised tokens [N, d] of the visible tokens x [N, d_in] at `layout`."""
        config = self.config
        block = layout.block(config.attention, config.block)
        table = rope_table(layout, config.width // config.heads, config.rope_layout())
        plan = attention_plan(layout, block)
        x = self.drop(self.proj(self.normalised(x, layout, block)))  # [N, d]
        return self.norm(self.blocks.run(x, table, plan))

    def normalised(
        self, x: Tensor, layout: Layout, block: Tensor, seen: Seen | None = None
    ) -> Tensor:
        """x after `input_norm`; statistics of a take come from visible tokens only.

        `seen` tells of tokens that were visible before x (a stream's past).
        """
        kind = self.config.input_norm
        x = self.standardised(x)
        if kind == "take_center":
            return x - take_mean(x, layout)
        if kind == "causal_center":
            return x - visible_style(x, layout, block, self.style, self.config.style_look, seen)
        return x

    def standardised(self, x: Tensor) -> Tensor:
        """x in units of the training tokens' spread, unless `input_norm` is none."""
        return x if self.config.input_norm == "none" else (x - self.mean) / self.std

    @property
    def style(self) -> Style:
        """What `causal_center` knows of takes."""
        return Style(self.style_read, self.style_write, self.style_strength)

    def segment_rule(self) -> SegmentRule:
        """Where c(i) comes from, with what was measured for it."""
        config = self.config
        if config.segments in ("annotated", "fixed"):
            return SegmentRule(config.segments, config.block)
        lengths = FoundConfig(config.found_tokens, config.found_max)
        found = FoundParameters(lengths, float(self.found_threshold), self.std.cpu().numpy())
        return SegmentRule(config.segments, config.block, found)

    def segments(
        self, features: np.ndarray, annotated: np.ndarray | None = None, name: str = "the take"
    ) -> np.ndarray:
        """c(i) [T] as this encoder's attention and positions count it."""
        if self.config.segments == "annotated" and not self.config.uses_segments:
            known = annotated if annotated is not None else np.zeros(len(features), np.int64)
            return attention_segments(known)
        return take_segments(features, annotated, self.segment_rule(), name)

    def copy_statistics(self, other: ProcedureEncoder) -> None:
        """Takes over what was measured on the training stream; no learned weight."""
        own = dict(self.named_buffers())
        for name, value in other.named_buffers():
            own[name].copy_(value)

    @torch.inference_mode()
    def encode(
        self, tokens: np.ndarray | Tensor, segment_lengths: Sequence[int] | None = None
    ) -> Tensor:
        """One take: tokens [T, d_in] -> features [T, d]; annotated segments have to be given."""
        x = torch.as_tensor(tokens, dtype=torch.float32, device=self.mean.device)
        if x.ndim != 2 or x.shape[1] != self.config.d_in:
            raise InputError(
                f"tokens are {tuple(x.shape)}, this encoder takes [T, {self.config.d_in}]"
            )
        lengths = self._own_lengths(x) if segment_lengths is None else list(segment_lengths)
        if sum(lengths) != len(x):
            raise InputError(f"segment lengths sum to {sum(lengths)}, there are {len(x)} tokens")
        return self(x, layout_of_segments([lengths]).to(x.device))

    def _own_lengths(self, x: Tensor) -> list[int]:
        """Segment lengths that need no annotation, if this encoder has such."""
        if self.config.segments == "annotated" and self.config.uses_segments:
            raise InputError(
                "this encoder was trained on annotated segments: pass segment_lengths, "
                "or use one trained with pjepa.segments=found or fixed"
            )
        _, lengths = runs(self.segments(x.float().cpu().numpy()))
        return [int(length) for length in lengths]

    def stream(
        self, horizon: int | None = None, segments: SegmentRule | None = None
    ) -> EncoderStream:
        """Exact incremental encoding of one take: see `EncoderStream`.

        `horizon`: tokens kept from before the present block, all by default. `segments`: another
        rule than the one this encoder was trained with.
        """
        from pjepa.features.stream import EncoderStream

        return EncoderStream(self, horizon, segments)

    def save_pretrained(self, folder: str | Path, card: str | None = None) -> None:
        """Writes model.safetensors, config.json and README.md, the model card.

        Without a `card` it holds what the architecture tells; `pjepa publish` adds data and scores.
        """
        folder = Path(folder)
        with whole_file(folder / "model.safetensors") as partial:
            save_file({k: v.contiguous().cpu() for k, v in self.state_dict().items()}, partial)
        write_json(folder / "config.json", self.config.model_dump())
        with whole_file(folder / "README.md") as partial:
            partial.write_text(card or model_card(self.config), encoding="utf-8")

    def push_to_hub(
        self, repo: str, card: str | None = None, private: bool = True, token: str | None = None
    ) -> str:
        """Uploads what `save_pretrained` writes as one commit; returns the address of the model."""
        from pjepa.model.hub import upload_folder

        with TemporaryDirectory() as folder:
            self.save_pretrained(folder, card)
            return upload_folder(Path(folder), repo, private, token)

    @classmethod
    def from_pretrained(cls, name: str | Path, device: str = "cpu") -> ProcedureEncoder:
        """Loads a folder written by `save_pretrained`, or a hub id."""
        folder = Path(name)
        if not folder.is_dir():
            from pjepa.model.hub import downloaded_folder

            folder = downloaded_folder(str(name))
        encoder = cls(_read_config(folder / "config.json"))
        encoder.load_state_dict(_read_weights(folder / "model.safetensors", encoder.state_dict()))
        return encoder.to(device).eval()

    @classmethod
    def from_release(
        cls,
        source: str | Path,
        architecture: Mapping[str, Any] | None = None,
        device: str = "cpu",
    ) -> ProcedureEncoder:
        """Loads one of the authors' checkpoints: a file, or a name such as assembly101_tsm_clip."""
        from pjepa.model.release import load_release

        return load_release(source, architecture, device)


def _read_config(path: Path) -> EncoderConfig:
    try:
        return EncoderConfig.model_validate(read_json(path))
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(map(str, fault["loc"]))
        raise InputError(
            f"{path}: {place}: {fault['msg']}; not an encoder of this version"
        ) from None


def _read_weights(path: Path, expected: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a file, which must be those of its config."""
    try:
        state = load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: no safetensors file ({error})") from None
    for name, tensor in expected.items():
        found = tuple(state[name].shape) if name in state else "nothing"
        if found != tuple(tensor.shape):
            raise InputError(f"{path}: {name}: expected {tuple(tensor.shape)}, found {found}")
    return state
