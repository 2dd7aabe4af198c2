"""What probes keep of earlier tokens on a stream: a window of them, or keys and values of all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from pjepa.model.stream import KeyValues, cached_attend
from pjepa.probes.attentive.probe import AttentiveProbe
from pjepa.probes.ltcausal.probe import LTCausal
from pjepa.probes.ltcontext.probe import Layer, Stage
from pjepa.storage.saver import State, numbers


class AttentiveMemory:
    """The tokens that the windows of later ones can see: at most a window and a chunk of them.

    They begin at a multiple of the chunk, so that chunks are those of the whole take. A window is
    small beside what makes its tokens, so it is attended anew with every push.
    """

    def __init__(self, module: AttentiveProbe) -> None:
        self.module = module
        self.recent = module.position.new_zeros(0, module.project.in_features)  # [n, D]

    @property
    def cache_bytes(self) -> int:
        """Return the bytes of the tokens."""
        return self.recent.nbytes

    def probabilities(self, x: Tensor, segment: Tensor, commit: bool) -> Tensor:
        """Return class probabilities [n, C] of the next tokens [n, D]; `commit` keeps them."""
        if not len(x):
            return x.new_zeros(0, self.module.head.out_features)
        config, seen = self.module.config, torch.cat([self.recent, x])
        newest = [(len(self.recent), len(seen))]
        found = next(self.module.predict_newest(seen, segment, newest))
        if commit:
            begun = len(seen) // config.chunk * config.chunk
            first = begun - (config.window - config.chunk)  # of the next token's window
            self.recent = seen[max(0, first // config.chunk * config.chunk) :]
        return found

    def state(self) -> State:
        """Return the tokens."""
        return {"recent": self.recent}

    def restore(self, state: State) -> None:
        """Resume from `state`."""
        self.recent = state["recent"].to(self.recent.device)


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
