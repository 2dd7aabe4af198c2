"""Exact incremental encoding of a take that is still being recorded.

    stream = encoder.stream()
    for segment in segments:
        features = stream.push(segment)      # == encode() of everything so far, at these tokens

A token is final when its block is (Eq. 3): its segment (`clip_causal`), its fixed window
(`block_causal`) or itself (`token_causal`). Final tokens are encoded once and leave their keys and
values, 2 x depth x width numbers each. `horizon: h` keeps only h tokens from before the present
block; the result is then exactly that of an encoder whose attention, in every layer, reaches no
further back than h tokens before the query's block. Statistics of `causal_center` are sums, so
they cover the whole take at any horizon.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pjepa.core.runs import whole_runs
from pjepa.model.attention import Layout, of_one_dtype, rope_table
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.segments import FoundConfig, FoundParameters, OnlineSegments, SegmentRule
from pjepa.model.style import StyleSums
from pjepa.storage.saver import State, load_state, numbers, part, save_state, under
from pjepa.ui.console import InputError
from pjepa.ui.transfer import sent

# Attention over keys and values of earlier calls: what a stream keeps of its past.

LEAST = 64  # tokens a buffer holds at least


class KeyValues:
    """Keys and values of one layer in a buffer that doubles: appending n tokens costs O(n).

    The buffer is at most twice what it had to hold at its fullest.
    """

    def __init__(self) -> None:
        self.buffer: Tensor | None = None  # [2, capacity, heads, d_h]
        self.first = self.last = 0  # what is in use of it

    def __len__(self) -> int:
        return self.last - self.first

    @property
    def kept(self) -> Tensor:
        """Return the keys and values held, [2, T, heads, d_h]."""
        assert self.buffer is not None
        return self.buffer[:, self.first : self.last]

    @property
    def nbytes(self) -> int:
        """Return the bytes of the whole buffer."""
        return 0 if self.buffer is None else self.buffer.nbytes

    def append(self, keys: Tensor, values: Tensor) -> Tensor:
        """Add tokens [n, heads, d_h]; return all that is kept, [2, T, heads, d_h]."""
        count = len(keys)
        self._make_room(count, keys)
        assert self.buffer is not None
        torch.stack((keys, values), out=self.buffer[:, self.last : self.last + count])
        self.last += count
        return self.kept

    def drop_newest(self, count: int) -> None:
        """Remove the tokens appended last."""
        self.last -= count

    def trim(self, count: int) -> None:
        """Forget all but the newest `count` tokens."""
        self.first = max(self.first, self.last - count)

    def _make_room(self, count: int, like: Tensor) -> None:
        capacity = 0 if self.buffer is None else self.buffer.shape[1]
        if self.buffer is not None and self.last + count <= capacity:
            return
        held, target = len(self), self.buffer
        # Else the free front is at least as long as what is held.
        if target is None or 2 * (held + count) > capacity:
            size = max(LEAST, 2 * (held + count))
            target = like.new_empty(2, size, *like.shape[1:])
        if held:
            target[:, :held] = self.kept
        self.buffer, self.first, self.last = target, 0, held


def appended_attend(
    past: KeyValues, mask: Tensor | None, q: Tensor, k: Tensor, v: Tensor
) -> Tensor:
    """Return the attention of new tokens [n, heads, d_h], which are appended to `past`."""
    q, k, v = of_one_dtype(q, k, v)
    keys, values = past.append(k, v)
    q = q.to(keys.dtype)  # autocast may have begun or ended since the buffer was made
    return cached_attend(q, keys, values, mask).to(v.dtype)


def cached_attend(q: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
    """Return attention [n, heads, d_h] of q over keys and values [T, heads, d_h].

    `mask` bool [n, T] is True where a query may look; None: everywhere.
    """
    q, keys, values = (x.transpose(0, 1)[None] for x in (q, keys, values))  # [1, heads, T, d_h]
    out = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
    return out[0].transpose(0, 1)


CHUNK = 256  # tokens of whole blocks that are encoded together when many are pushed at once


class EncoderStream:
    """An ongoing take: `push` returns the features [n, d] of the tokens that became final.

    With annotated segments every `push` is one segment, unless `ends=False` leaves it open until
    `end_segment()`. Other segments end by their own rule, and blocks of `block_causal` attention
    complete themselves, so tokens may be pushed in pieces of any length.
    """

    def __init__(
        self,
        encoder: ProcedureEncoder,
        horizon: int | None = None,
        segments: SegmentRule | None = None,
    ) -> None:
        _refuse_offline(encoder)
        if horizon is not None and horizon < 0:
            raise InputError(f"horizon {horizon}: expected a number of tokens, 0 or more")
        uses = encoder.config.uses_segments
        self.rule = segments or (encoder.segment_rule() if uses else SegmentRule("annotated"))
        self.encoder, self.horizon = encoder, horizon
        self.segments = OnlineSegments(self.rule)
        self.past = [KeyValues() for _ in encoder.blocks]
        self.style = StyleSums(torch.zeros_like(encoder.style_strength, dtype=torch.float64), 0)
        self.open: list[Tensor] = []  # tokens [n, d_in] that are not final, and
        self.places: list[Tensor] = []  # their coordinates [n, 3]
        self.newest = np.zeros(0, np.int64)  # segments c(i) of the tokens last returned,
        self.newest_inputs = encoder.mean.new_zeros(0, encoder.config.d_in)  # these normalised
        self.finished = False

    @property
    def tokens(self) -> int:
        """Return the number of tokens pushed so far."""
        return self.segments.index

    @property
    def waiting(self) -> int:
        """Return the number of pushed tokens that are not final."""
        return sum(map(len, self.open))

    @property
    def waiting_segments(self) -> np.ndarray:
        """Return segments c(i) of the waiting tokens."""
        return np.concatenate([self.newest[:0], *(place[:, 0].numpy() for place in self.places)])

    @property
    def cache_bytes(self) -> int:
        """Return the bytes of keys, values and waiting tokens; at most twice what they need."""
        return sum(past.nbytes for past in self.past) + sum(x.nbytes for x in self.open)

    @torch.inference_mode()
    def push(self, tokens: np.ndarray | Tensor, ends: bool | None = None) -> Tensor:
        """Return the features [m, d] of the tokens that are final now, in order; m may be 0.

        `ends`: the segment ends with these tokens [n, d_in]. By default it does where segments are
        annotated, and elsewhere the rule alone decides.
        """
        x, host = self._checked(tokens)
        if ends is None:
            ends = self.rule.kind == "annotated"
        place = self.segments.push(host, ends)
        self.open.append(x)
        self.places.append(torch.from_numpy(place))
        return self._commit(final=self._final())

    @torch.inference_mode()
    def end_segment(self) -> Tensor:
        """End the segment after the last token; return the features that this makes final."""
        self.segments.end()
        return self._commit(final=self._final())

    @torch.inference_mode()
    def peek(self) -> Tensor:
        """Return features [waiting, d] of the tokens that are not final, as if the take ended here.

        Nothing is committed: later pushes are unaffected.
        """
        if not self.waiting:
            return self.encoder.mean.new_zeros(0, self.encoder.config.width)
        features, _ = self._encoded(torch.cat(self.open), torch.cat(self.places))
        for past in self.past:
            past.drop_newest(self.waiting)
        return features

    @torch.inference_mode()
    def finish(self) -> Tensor:
        """End the take; return the features of all waiting tokens. No push may follow."""
        self.segments.end()
        self.finished = True
        return self._commit(final=self.waiting)

    def _checked(self, tokens: np.ndarray | Tensor) -> tuple[Tensor, np.ndarray]:
        """Return the tokens on the device and, for checks, on the host: one wait at most."""
        if self.finished:
            raise InputError("the stream is finished; encoder.stream() begins another take")
        device, width = self.encoder.mean.device, self.encoder.config.d_in
        x = torch.as_tensor(tokens, dtype=torch.float32)
        if x.ndim != 2 or x.shape[1] != width:
            raise InputError(f"tokens are {tuple(x.shape)}, this encoder takes [n, {width}]")
        host = x.cpu().numpy()
        if not np.isfinite(host).all():
            raise InputError("tokens contain NaN or infinity, which would spoil all later features")
        # The caller may reuse its buffer before the block is final.
        return (x.clone() if x.device == device else sent(x, device)), host

    def _final(self) -> int:
        """Return how many of the waiting tokens lie in blocks that no later token can join."""
        segments = self.segments
        following = torch.tensor([[segments.segment, segments.offset, segments.index]])
        block, final = self.encoder.block(_layout(following)), 0
        for place in self.places:  # blocks only grow: stop where one is open
            closed = int((self.encoder.block(_layout(place)) < block).sum())
            final += closed
            if closed < len(place):
                break
        return final

    def _commit(self, final: int) -> Tensor:
        """Encode the first `final` waiting tokens for good."""
        self.newest, self.newest_inputs = self.newest[:0], self.newest_inputs[:0]
        if not final:
            return self.encoder.mean.new_zeros(0, self.encoder.config.width)
        x, place = torch.cat(self.open), torch.cat(self.places)
        self.newest = place[:final, 0].numpy()
        self.open, self.places = [x[final:].clone()], [place[final:].clone()]
        block = self.encoder.block(_layout(place[:final])).numpy()
        features, inputs = [], []
        for start, stop in whole_runs(block, 0, final, CHUNK):
            encoded, normal = self._encoded(x[start:stop], place[start:stop])
            features.append(encoded)
            inputs.append(normal)
            self._remember(x[start:stop])
        self.newest_inputs = torch.cat(inputs)
        return torch.cat(features)

    def _remember(self, x: Tensor) -> None:
        if self.encoder.config.input_norm == "causal_center":
            self.style = self.style.after(self.encoder.standardised(x), self.encoder.style)
        if self.horizon is not None:
            for past in self.past:
                past.trim(self.horizon)

    def _encoded(self, x: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
        """Return features [n, d] of whole blocks, and these normalised.

        Keys and values are appended.
        """
        encoder, config = self.encoder, self.encoder.config
        mask = self._mask(encoder.block(_layout(place)))
        mask = None if mask is None else sent(mask, x.device)
        layout = _layout(sent(place, x.device))
        table = rope_table(layout, config.heads, config)
        normal = encoder.normalised(x, layout, self.style)  # [n, d_in]
        x = encoder.project(normal)  # [n, d]
        for layer, past in zip(encoder.blocks, self.past, strict=True):
            x = layer(x, table, partial(appended_attend, past, mask))
        return encoder.norm(x), normal

    def _mask(self, block: Tensor) -> Tensor | None:
        """Return which keys, kept ones first, each new token may see.

        None if that is all of them.
        """
        if bool(block[0] == block[-1]):
            return None
        held, count = len(self.past[0]), len(block)
        new = block[None, :] <= block[:, None]  # [n, n]
        mask = torch.cat([new.new_ones(count, held), new], dim=1)
        if self.horizon is not None:
            key = torch.arange(-held, count)
            block = block.contiguous()
            first = torch.searchsorted(block, block)  # where each token's block begins
            mask &= key >= first[:, None] - self.horizon
        return mask

    def save(self, folder: str | Path) -> None:
        """Write the state, from which `load` resumes with identical results."""
        save_state(Path(folder), self.state(), self.about())

    @classmethod
    def load(cls, encoder: ProcedureEncoder, folder: str | Path) -> EncoderStream:
        """Return the stream saved in a folder, for the encoder it was saved with."""
        state, about = load_state(Path(folder))
        stream = cls(encoder, about.get("horizon"), _stored_rule(about.get("rule"), state))
        if about != stream.about():
            raise InputError(f"{folder}: the state of a stream of another encoder; start afresh")
        stream.restore(state)
        return stream

    def about(self) -> dict[str, Any]:
        """Return the encoder and settings that a saved state belongs to."""
        found = self.rule.found
        rule: dict[str, Any] = {"kind": self.rule.kind, "block": self.rule.block, "found": None}
        if found is not None:
            rule["found"] = {"threshold": found.threshold, **asdict(found.config)}
        return {"encoder": self._weights, "horizon": self.horizon, "rule": rule}

    @cached_property
    def _weights(self) -> str:
        """Return a hash of the encoder's weights and config."""
        digest = hashlib.sha256(self.encoder.config.model_dump_json().encode())
        for name, value in sorted(self.encoder.state_dict().items()):
            digest.update(name.encode())
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        return digest.hexdigest()

    def state(self) -> State:
        """Return everything that later outputs depend on."""
        width = self.encoder.config.d_in
        state = {"seen": self.style.total, "counts": numbers(self.style.count, self.finished)}
        state["open"] = torch.cat([torch.zeros(0, width), *(x.cpu() for x in self.open)])
        state["places"] = torch.cat([torch.zeros(0, 3, dtype=torch.int64), *self.places])
        state |= under("segments", self.segments.state())
        if self.rule.found is not None:
            state["std"] = torch.from_numpy(np.array(self.rule.found.std))
        for number, past in enumerate(self.past):
            if past.buffer is not None:
                state[f"layer.{number}"] = past.kept
        return state

    @torch.inference_mode()
    def restore(self, state: State) -> None:
        """Resume from `state`; only for a stream that has not started."""
        device = self.encoder.mean.device
        count, finished = state["counts"].tolist()
        self.style = StyleSums(state["seen"].to(device), int(count))
        self.finished = bool(finished)
        self.open, self.places = [state["open"].to(device)], [state["places"]]
        self.segments.restore(part("segments", state))
        for number, past in enumerate(self.past):
            if f"layer.{number}" in state:
                past.append(*state[f"layer.{number}"].to(device))


def _layout(place: Tensor) -> Layout:
    """Return the layout of tokens of one take at coordinates [n, 3]."""
    return Layout((len(place),), *place.unbind(1))


def _stored_rule(stored: dict[str, Any] | None, state: State) -> SegmentRule:
    """Return the segment rule that a saved state was made with."""
    if not stored:
        raise InputError("not the state of an encoder's stream; start afresh")
    found = None
    if stored["found"] is not None:
        config = dict(stored["found"])
        threshold = config.pop("threshold")
        found = FoundParameters(FoundConfig(**config), threshold, state["std"].numpy())
    return SegmentRule(stored["kind"], stored["block"], found)


def _refuse_offline(encoder: ProcedureEncoder) -> None:
    """Raise for an encoder whose past changes with later tokens."""
    config = encoder.config
    if config.attention == "bidirectional":
        raise InputError(
            "bidirectional attention revises every token with each new one, so it cannot be "
            "streamed; train with pjepa.attention=clip_causal or block_causal"
        )
    if config.input_norm == "take_center":
        raise InputError(
            "take_center subtracts the mean of the whole take, so it cannot be streamed; train "
            "with pjepa.input_norm=causal_center"
        )
    if encoder.training and config.dropout:
        raise InputError(
            "this encoder is in training mode, with dropout; call encoder.eval() first"
        )
