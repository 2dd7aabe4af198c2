"""The procedure encoder f: tokens in, contextualised tokens out (paper Sec. 3.2).

    z = LN(blocks(project(normalise(x)))),  attention under c(j) <= c(i) (Eq. 3), RoPE over (c, r)

The student and the teacher are this module; at inference only it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from operator import index
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from pjepa.core.runs import attention_segments
from pjepa.core.section import first_fault
from pjepa.model.attention import (
    Attend,
    AttentionPlan,
    Layout,
    RopeTable,
    attention_plan,
    layout_of_takes,
    rope_table,
    rotate,
)
from pjepa.model.config import EncoderConfig
from pjepa.model.segments import FoundConfig, FoundParameters, SegmentRule, take_segments
from pjepa.model.style import Style, StyleSums, take_mean, visible_style
from pjepa.nn.layers import Mlp
from pjepa.storage.reading import read_object, read_tensors
from pjepa.storage.writing import atomic_file, write_json, write_tensors
from pjepa.ui.console import InputError

if TYPE_CHECKING:
    from pjepa.model.stream import EncoderStream

WEIGHTS, CONFIG = "model.safetensors", "config.json"

# Pre-norm transformer blocks over packed tokens, shared by encoder and predictor.


class Attention(nn.Module):
    """Multi-head attention with rotary positions; one fused linear ordered q, k, v."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(
        self, x: Tensor, table: RopeTable, attend: Attend, tokens: Tensor | None = None
    ) -> Tensor:
        """Return [M, d] for the queries that `attend` wants, of x [N, d] or x[tokens]."""
        qkv = self.qkv(x)
        qkv = qkv if tokens is None else qkv.index_select(0, tokens)
        qk, v = qkv.unflatten(-1, (3, self.heads, -1)).split((2, 1), dim=1)  # [N, ., heads, d_h]
        q, k = rotate(qk, table).unbind(1)
        out = attend(q, k, v.squeeze(1))  # [M, heads, d_h]
        return self.proj(out.flatten(-2))


class Block(nn.Module):
    """A pre-norm block: x + attention(norm x), then x + MLP(norm x); dropout on both branches."""

    def __init__(self, width: int, heads: int, mlp_ratio: float, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = Mlp(width, int(width * mlp_ratio))
        self.drop = nn.Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        table: RopeTable,
        attend: Attend,
        rows: Tensor | None = None,
        tokens: Tensor | None = None,
    ) -> Tensor:
        """Return tokens [N, d]; with `rows` [M], which `attend` then wants, those only.

        The tokens are x[tokens] if given, where many are alike: each is projected once.
        """
        attended = self.attn(self.norm1(x), table, attend, tokens)
        x = x if tokens is None else x.index_select(0, tokens)
        x = x if rows is None else x.index_select(0, rows)
        x = x + self.drop(attended)
        return x + self.drop(self.mlp(self.norm2(x)))


class Stack(nn.ModuleList):
    """Blocks one after the other; `recompute` trades time for memory while training."""

    recompute = False

    def run(
        self,
        x: Tensor,
        table: RopeTable,
        plan: AttentionPlan,
        rows: Tensor | None = None,
        tokens: Tensor | None = None,
    ) -> Tensor:
        """Return x [N, d] after all blocks; with `rows` [M], the last block computes only those.

        With `tokens` [N], what goes in are the rows x[tokens].
        """
        for number, block in enumerate(self):
            wanted = rows if number == len(self) - 1 else None
            step = plan if wanted is None else replace(plan, rows=wanted)
            inputs = (x, table, step.attend, wanted, tokens if number == 0 else None)
            if self.recompute and torch.is_grad_enabled():
                x = checkpoint(block, *inputs, use_reentrant=False)
            else:
                x = block(*inputs)
        return x


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

    def forward(self, x: Tensor, layout: Layout, rows: Tensor | None = None) -> Tensor:
        """Return the contextualised tokens [N, d] of the visible tokens x [N, d_in] at `layout`.

        `rows`: those of some tokens only, [M, d]; ascending, on the device of x.
        """
        return self.contextualised(self.normalised(x, layout), layout, rows)

    def contextualised(self, x: Tensor, layout: Layout, rows: Tensor | None = None) -> Tensor:
        """Return what `forward` does, of tokens that are normalised."""
        plan = attention_plan(layout, self.block(layout))
        table = rope_table(layout, self.config.heads, self.config)
        x = F.dropout(self.project(x), self.config.dropout, self.training)  # [N, d]
        return self.norm(self.blocks.run(x, table, plan, rows))

    def block(self, layout: Layout) -> Tensor:
        """Return the block [N] of every token: it sees the keys up to the end of its block."""
        return layout.block(self.config.attention, self.config.block)

    def project(self, x: Tensor) -> Tensor:
        """Return normalised tokens at the encoder's width, in full precision."""
        projected: Tensor = self.proj(x)
        return projected.to(self.mean.dtype)

    def normalised(self, x: Tensor, layout: Layout, past: StyleSums | None = None) -> Tensor:
        """Return x after `input_norm`; statistics of a take come from visible tokens only.

        `past` are those of tokens that were visible before x, in a stream.
        """
        kind = self.config.input_norm
        x = self.standardised(x)
        with torch.autocast(x.device.type, enabled=False):  # statistics need full precision
            if kind == "take_center":
                return x - take_mean(x, layout)
            if kind == "causal_center":
                block, look = self.block(layout), self.config.style_look
                return x - visible_style(x, layout, block, self.style, look, past)
        return x

    def standardised(self, x: Tensor) -> Tensor:
        """Return x in units of the training tokens' spread, unless `input_norm` is none."""
        return x if self.config.input_norm == "none" else (x - self.mean) / self.std

    @property
    def style(self) -> Style:
        """Return what `causal_center` knows of takes."""
        return Style(self.style_read, self.style_write, self.style_strength)

    def segment_rule(self) -> SegmentRule:
        """Return where c(i) comes from, with what was measured for it."""
        config = self.config
        if config.segments in ("annotated", "fixed"):
            return SegmentRule(config.segments, config.block)
        lengths = FoundConfig(config.found_tokens, config.found_max)
        found = FoundParameters(lengths, float(self.found_threshold), self.std.cpu().numpy())
        return SegmentRule(config.segments, config.block, found)

    def segments(
        self,
        features: np.ndarray,
        annotated: np.ndarray | None = None,
        name: str = "the take",
        recording: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return c(i) [T] as this encoder's attention and positions count it."""
        if self.config.segments == "annotated" and not self.config.uses_segments:
            known = annotated if annotated is not None else np.zeros(len(features), np.int64)
            return attention_segments(known)
        return take_segments(features, annotated, self.segment_rule(), name, recording)

    def copy_statistics(self, other: ProcedureEncoder) -> None:
        """Copy what was measured on the training stream; no learned weight."""
        own = dict(self.named_buffers())
        for name, value in other.named_buffers():
            own[name].copy_(value)

    @torch.inference_mode()
    def encode(
        self,
        tokens: np.ndarray | Tensor,
        segment_lengths: Sequence[int] | None = None,
        *,
        segment: np.ndarray | None = None,
    ) -> Tensor:
        """Return features [T, d] of a take [T, d_in].

        Annotated segments must be given: their lengths in order, or `segment`, c(i) of every token.
        """
        return self(*self.take(tokens, segment_lengths, segment))

    def take(
        self,
        tokens: np.ndarray | Tensor,
        segment_lengths: Sequence[int] | None = None,
        segment: np.ndarray | None = None,
    ) -> tuple[Tensor, Layout]:
        """Return the checked tokens of a take [T, d_in] and where they are, on our device."""
        x = torch.as_tensor(tokens, dtype=torch.float32, device=self.mean.device)
        if x.ndim != 2 or x.shape[1] != self.config.d_in:
            raise InputError(
                f"tokens are {tuple(x.shape)}, this encoder takes [T, {self.config.d_in}]"
            )
        if not len(x):
            raise InputError("no token to encode: expected at least one")
        if segment_lengths is not None:
            segment = segments_of_lengths(segment_lengths)
        elif segment is None:
            if self.config.segments == "annotated" and self.config.uses_segments:
                raise InputError(
                    "this encoder was trained on annotated segments: pass segment_lengths, "
                    "or use one trained with pjepa.segments=found or fixed"
                )
            segment = self.segments(x.cpu().numpy())
        if len(segment) != len(x):
            raise InputError(f"segment lengths sum to {len(segment)}, there are {len(x)} tokens")
        return x, layout_of_takes([attention_segments(segment)]).to(x.device)

    def stream(
        self, horizon: int | None = None, segments: SegmentRule | None = None
    ) -> EncoderStream:
        """Return an exact incremental encoding of one take: see `EncoderStream`.

        `horizon`: tokens kept from before the present block, all by default. `segments`: another
        rule than the one this encoder was trained with.
        """
        from pjepa.model.stream import EncoderStream

        return EncoderStream(self, horizon, segments)

    def save(self, folder: Path) -> None:
        """Write model.safetensors and config.json: all that `from_pretrained` needs."""
        write_tensors(folder / WEIGHTS, self.state_dict())
        write_json(folder / CONFIG, self.config.model_dump())

    def save_pretrained(self, folder: str | Path, card: str | None = None) -> None:
        """Write what `save` does, and README.md, the model card.

        Without a `card` it holds what the architecture tells; `pjepa publish` adds data and scores.
        """
        from pjepa.model.card import model_card

        folder = Path(folder)
        self.save(folder)
        with atomic_file(folder / "README.md") as partial:
            partial.write_text(card or model_card(self.config), encoding="utf-8")

    def push_to_hub(
        self, repo: str, card: str | None = None, private: bool = True, token: str | None = None
    ) -> str:
        """Upload what `save_pretrained` writes as one commit; return the address of the model."""
        from pjepa.storage.hub import upload_folder

        with TemporaryDirectory() as folder:
            self.save_pretrained(folder, card)
            return upload_folder(Path(folder), repo, private, token)

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        device: str = "cpu",
        *,
        revision: str | None = None,
        cache_dir: str | Path | None = None,
        token: str | None = None,
    ) -> ProcedureEncoder:
        """Load a folder written by `save_pretrained`, or a hub id (at a branch, tag or commit)."""
        folder = Path(name)
        if not folder.is_dir():
            from pjepa.storage.hub import downloaded_folder

            folder = downloaded_folder(str(name), revision, cache_dir, token)
        config, state = _read_config(folder), read_tensors(folder / WEIGHTS)
        faults = f"depth {config.depth}" if config.depth > len(state) else ""
        if not faults:  # nor is anything allocated before it is known to fit
            with torch.device("meta"):
                expected = cls(config).state_dict()
            faults = tensor_faults(state, expected)
        if faults:
            raise InputError(f"{folder / WEIGHTS}: does not fit {CONFIG}: {faults}")
        encoder = cls(config)  # not `to_empty` of the other, which imports sympy for a second
        encoder.load_state_dict(state)
        return encoder.to(device).eval()

    @classmethod
    def from_release(
        cls,
        source: str | Path,
        architecture: Mapping[str, Any] | None = None,
        device: str = "cpu",
    ) -> ProcedureEncoder:
        """Load one of the authors' checkpoints: a file, or a name such as assembly101_tsm_clip."""
        from pjepa.model.release import load_release

        return load_release(source, architecture, device)


def segments_of_lengths(lengths: Sequence[int]) -> np.ndarray:
    """Return c(i) [T] of segments of these numbers of tokens, each at least 1."""
    counts = []
    for number, length in enumerate(lengths):
        count = 0
        with suppress(TypeError):  # 2.5, or a text
            count = index(length)
        if count < 1:
            raise InputError(
                f"segment_lengths[{number}] is {length!r}; expected a count of tokens, 1 or more"
            )
        counts.append(count)
    return np.repeat(np.arange(len(counts)), counts)


def tensor_faults(state: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> str:
    """Return how tensors differ from the expected names and shapes; empty if they do not."""
    faults = [
        f"{name} is {list(state[name].shape)} instead of {list(value.shape)}"
        for name, value in expected.items()
        if name in state and state[name].shape != value.shape
    ]
    faults += [f"{name} is missing" for name in expected if name not in state]
    faults += [f"{name} is unknown" for name in state if name not in expected]
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{faults[0]}{more}" if faults else ""


def _read_config(folder: Path) -> EncoderConfig:
    path, inside = folder / CONFIG, folder / "pjepa"
    if not path.is_file():
        hint = f"; did you mean {inside}?" if (inside / CONFIG).is_file() else ""
        raise InputError(f"{folder}: holds no encoder (no {CONFIG}){hint}")
    try:
        return EncoderConfig.model_validate(read_object(path))
    except ValidationError as error:
        fault = first_fault(error, EncoderConfig)
        raise InputError(f"{path}: {fault}; not an encoder of this version") from None
