"""The streaming attentive probe, token by token: the window's keys and values are computed once.

Positions count inside the window, which advances by one chunk at a time. So the keys of a window
are valid until its chunk is complete, and are recomputed from the last tokens for the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from pjepa.model.stream import KeyValues, cached_attend
from pjepa.probes.attentive.probe import AttentiveProbe, WindowBlock
from pjepa.probes.ltcausal.probe import LTCausal
from pjepa.probes.ltcontext.probe import Layer, Stage
from pjepa.storage.saver import State, numbers


class AttentiveMemory:
    """The tokens of the current window, and every layer's keys and values for them."""

    def __init__(self, module: AttentiveProbe) -> None:
        self.module, config = module, module.config
        self.before = config.window - config.chunk  # places in front of the chunk
        width = module.project.in_features
        self.recent = module.position.new_zeros(0, width)  # [<= window, D]
        self.filled = config.chunk  # tokens of the chunk so far; when full, the next chunk begins
        self.past = [KeyValues() for _ in module.blocks]

    @property
    def cache_bytes(self) -> int:
        """Return the bytes of at most `window` tokens, and of their keys and values."""
        return self.recent.nbytes + sum(past.nbytes for past in self.past)

    def probabilities(self, x: Tensor, segment: Tensor, commit: bool) -> Tensor:
        """Return class probabilities [n, C] of the next tokens [n, D]; `commit` keeps them."""
        kept = self.recent, self.filled, self.past
        lengths = [len(past) for past in self.past]
        found = [x.new_zeros(0, self.module.head.out_features)]
        while len(x):
            if self.filled == self.module.config.chunk:
                self._next_chunk()
            count = min(len(x), self.module.config.chunk - self.filled)
            found.append(self._step(x[:count]))
            x = x[count:]
        if not commit:
            self.recent, self.filled, self.past = kept
            for past, length in zip(self.past, lengths, strict=True):
                past.drop_newest(len(past) - length)
        return torch.cat(found)

    def _next_chunk(self) -> None:
        """Advance the window: pass the places before the chunk through all layers once."""
        self.recent = self.recent[max(0, len(self.recent) - self.before) :]
        self.past = [KeyValues() for _ in self.module.blocks]
        self.filled = 0
        if len(self.recent):
            first = self.before - len(self.recent)
            self._through(self.recent, first, last_layer=False)

    def _step(self, x: Tensor) -> Tensor:
        logits = self._through(x, self.before + self.filled)
        self.recent = torch.cat([self.recent, x])
        self.filled += len(x)
        return logits.softmax(1)

    def _through(self, x: Tensor, place: int, last_layer: bool = True) -> Tensor:
        """Return the logits of tokens [n, D] at this place of the window; their keys are kept.

        Without the last layer, its keys are kept too, but nothing is predicted.
        """
        module = self.module
        x = module.project(x) + module.position[place : place + len(x)]
        for number, (block, past) in enumerate(zip(module.blocks, self.past, strict=True)):
            assert isinstance(block, WindowBlock)
            if not last_layer and number == len(self.past) - 1:
                _remembered(block, block.norm1(x), past)
                return x
            x = self._layer(block, x, past)
        return module.head(module.norm(x))

    def _layer(self, block: WindowBlock, x: Tensor, past: KeyValues) -> Tensor:
        """Return one layer's output [n, d] for the tokens x that follow what is kept."""
        seen = block.norm1(x)
        query = block.query(seen).unflatten(1, (block.heads, -1))  # [n, heads, d_h]
        held, count = len(past), len(x)
        keys, values = _remembered(block, seen, past)
        mask = None
        if self.module.config.chunk_attention == "causal" and count > 1:
            mask = x.new_ones(count, held + count, dtype=torch.bool).tril(held)
        out = cached_attend(query, keys, values, mask)
        x = x + block.proj(out.flatten(1))
        return x + block.mlp(block.norm2(x))

    def state(self) -> State:
        """Return the window's tokens, and their keys and values."""
        state = {"recent": self.recent, "filled": numbers(self.filled)}
        for number, past in enumerate(self.past):
            if past.buffer is not None:
                state[f"layer.{number}"] = past.kept
        return state

    def restore(self, state: State) -> None:
        """Resume from `state`."""
        device = self.recent.device
        self.recent, self.filled = state["recent"].to(device), int(state["filled"])
        for number, past in enumerate(self.past):
            if f"layer.{number}" in state:
                past.append(*state[f"layer.{number}"].to(device))


def _remembered(block: WindowBlock, seen: Tensor, past: KeyValues) -> Tensor:
    """Return keys and values [2, T, heads, d_h], those of the normalised tokens [n, d] added."""
    keys, values = block.key_value(seen).unflatten(1, (2, block.heads, -1)).unbind(1)
    return past.append(keys, values)


# LT-Causal, segment by segment: convolution tails, window keys and strided keys are kept.


@dataclass
class LayerPast:
    """What one layer keeps of earlier frames."""

    tail: Tensor  # [2 k, d], zeros before the take
    windows: KeyValues
    strides: KeyValues


@dataclass(frozen=True)
class Sights:
    """Attention masks between new and kept frames; shared by all layers."""

    windows: Tensor  # bool [n, kept + n]
    strides: Tensor  # bool [G, 1, rows of queries, rows of keys], frames in rows of G
    before: int  # frames of the first row that lie before the new ones
    after: int  # and places of the last row behind them


class LTCausalMemory:
    """The past frames in the form that every layer of every stage needs."""

    def __init__(self, model: LTCausal, horizon: int | None = None) -> None:
        self.model, self.config, self.horizon = model, model.config, horizon
        self.stages = [model.stage1, *(cast(Stage, stage) for stage in model.stages)]
        self.past = [[_layer_past(cast(Layer, x)) for x in stage.layers] for stage in self.stages]
        self.count = 0  # frames so far

    @property
    def cache_bytes(self) -> int:
        """Return the bytes of tails, keys and values."""
        return sum(p.tail.nbytes + p.windows.nbytes + p.strides.nbytes for p in self._layers())

    def probabilities(self, x: Tensor, segment: Tensor, commit: bool) -> Tensor:
        """Return class probabilities [n, C] of whole segments x [n, D]; `commit` keeps them."""
        if not len(x):
            return x.new_zeros(0, self.model.stage1.out_proj.out_features)
        sights = self._sights(self._order(segment))
        values: Tensor | None = None
        for number, stage in enumerate(self.stages):
            f = stage.input_proj(x)
            for layer, past in zip(stage.layers, self.past[number], strict=True):
                f = self._layer(cast(Layer, layer), f, values, past, sights, commit)
            x = stage.out_proj(f).softmax(-1)  # [n, C], what the next stage reads
            values = self.model.dim_reduction(f) if number == 0 else f
        self._keep(len(segment), commit)
        return x

    def _layers(self) -> list[LayerPast]:
        return [past for stage in self.past for past in stage]

    def _order(self, segment: Tensor) -> Tensor:
        """Return c(i) of the new frames, counted from 0; blocks if the probe uses fixed blocks."""
        if self.config.block is not None:
            index = self.count + torch.arange(len(segment), device=segment.device)
            segment = index // self.config.block
        return F.pad((segment[1:] != segment[:-1]).cumsum(0), (1, 0))

    def _layer(
        self,
        layer: Layer,
        f: Tensor,
        values: Tensor | None,
        past: LayerPast,
        sights: Sights,
        commit: bool,
    ) -> Tensor:
        """Return the layer's output [n, d] for new frames f [n, d]."""
        whole = torch.cat([past.tail, f])
        o = F.gelu(layer.dilated_conv(whole[None])[0, len(past.tail) :])
        q, keys, new = layer.windowed_attn.projected(o, values)
        seen, fed = past.windows.append(keys, new)
        attended = cached_attend(q, seen, fed, sights.windows)
        o = o + layer.windowed_attn.proj(F.gelu(attended.flatten(1)))
        q, keys, new = layer.ltc_attn.projected(o, values)
        past.strides.append(keys, new)
        attended = self._strided(q, past.strides, sights)
        o = o + layer.ltc_attn.proj(F.gelu(attended.flatten(1)))
        if commit:
            past.tail = whole[len(f) :]
        return f + layer.out_linear(o)

    def _strided(self, q: Tensor, past: KeyValues, sights: Sights) -> Tensor:
        """Return attention [n, heads, d_h] among frames at the same place modulo G."""
        step, count = self.config.stride, len(q)
        fill = q.new_zeros(sights.after, *q.shape[1:])
        rows = past.append(fill, fill).unflatten(1, (-1, step))  # [2, R, G, heads, d_h]
        past.drop_newest(sights.after)
        keys, values = rows.permute(0, 2, 3, 1, 4)  # [G, heads, R, d_h]
        queries = F.pad(q, (0, 0, 0, 0, sights.before, sights.after)).unflatten(0, (-1, step))
        out = F.scaled_dot_product_attention(
            queries.permute(1, 2, 0, 3), keys, values, attn_mask=sights.strides
        )  # [G, heads, rows, d_h]
        return out.permute(2, 0, 1, 3).flatten(0, 1)[sights.before : sights.before + count]

    def _sights(self, order: Tensor) -> Sights:
        """Return the masks for new frames of segments `order` [n]."""
        held, kept = len(self.past[0][0].windows), len(self.past[0][0].strides)
        width, step, count = self.config.window, self.config.stride, len(order)
        index = self.count + torch.arange(count, device=order.device)
        key = torch.arange(self.count - held, self.count + count, device=order.device)
        if self.config.release:
            windows = (key - index[:, None]).abs() <= width
        else:
            first = (index // width * width)[:, None]  # of each frame's window
            windows = (key >= first - width // 2) & (key < first + width + width // 2)
        windows &= F.pad(order, (held, 0), value=-1) <= order[:, None]  # the past is always seen
        before, after = kept % step, -(kept + count) % step
        far = count  # later than every segment: padding sees only padding
        queries = F.pad(order, (before, after), value=far).view(-1, step).T  # [G, rows]
        keys = F.pad(F.pad(order, (kept, 0), value=-1), (0, after), value=far).view(-1, step).T
        strides = keys[:, None, :] <= queries[:, :, None]  # [G, rows, R]
        if self.horizon is not None:
            place = torch.arange(kept + count + after, device=order.device).view(-1, step).T
            begin = kept + torch.searchsorted(order, order)  # where each frame's segment begins
            begin = F.pad(begin, (before, after)).view(-1, step).T
            strides &= place[:, None, :] >= begin[:, :, None] - self.horizon
        return Sights(windows, strides[:, None], before, after)

    def _keep(self, count: int, commit: bool) -> None:
        """End a run of `count` frames: take them back, or drop what no later frame can see."""
        self.count += count if commit else 0
        step, width = self.config.stride, self.config.window
        for past in self._layers():
            if not commit:
                past.windows.drop_newest(count)
                past.strides.drop_newest(count)
                continue
            past.windows.trim(width + width // 2)
            if self.horizon is not None:  # whole rows of G, so that the grid stays in place
                spare = (len(past.strides) - self.horizon) // step * step
                past.strides.trim(len(past.strides) - max(0, spare))

    def state(self) -> State:
        """Return everything that later frames depend on."""
        state = {"count": numbers(self.count)}
        for number, past in enumerate(self._layers()):
            state[f"{number}.tail"] = past.tail
            for name in ("windows", "strides"):
                if (held := getattr(past, name)).buffer is not None:
                    state[f"{number}.{name}"] = held.kept
        return state

    def restore(self, state: State) -> None:
        """Resume from `state`."""
        self.count = int(state["count"])
        for number, past in enumerate(self._layers()):
            past.tail = state[f"{number}.tail"].to(past.tail.device)
            for name in ("windows", "strides"):
                if f"{number}.{name}" in state:
                    getattr(past, name).append(*state[f"{number}.{name}"].to(past.tail.device))


def _layer_past(layer: Layer) -> LayerPast:
    conv = layer.dilated_conv
    tail = conv.weight.new_zeros(max(conv.shifts), conv.in_channels)
    return LayerPast(tail, KeyValues(), KeyValues())
