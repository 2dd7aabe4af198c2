"""The streaming attentive probe, token by token: the window's keys and values are computed once.

Positions count inside the window, which advances by one chunk at a time. So the keys of a window
are valid until its chunk is complete, and are recomputed from the last tokens for the next one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pjepa.encoder.attention.cache import KeyValues, cached_attend
from pjepa.nn.state import State, numbers
from pjepa.probes.attentive.probe import AttentiveProbe, WindowBlock


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
                keys, values = state[f"layer.{number}"].to(device)
                past.append(keys, values)


def _remembered(block: WindowBlock, seen: Tensor, past: KeyValues) -> Tensor:
    """Return keys and values [2, T, heads, d_h], those of the normalised tokens [n, d] added."""
    keys, values = block.key_value(seen).unflatten(1, (2, block.heads, -1)).unbind(1)
    return past.append(keys, values)
