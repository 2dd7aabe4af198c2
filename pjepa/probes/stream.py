"""Probes on a stream: every token's prediction as soon as it is final, equal to the offline one.

A prediction is final when all that it depends on is there (`Probe.sight`): with the token itself,
with its block of fixed length, or with its segment. Probes that see the whole take have no such
moment and are refused.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from pjepa.errors import InputError
from pjepa.probes.attentive import AttentiveProbe
from pjepa.probes.attentive_stream import AttentiveMemory
from pjepa.probes.linear import LinearProbe
from pjepa.probes.ltcausal import LTCausal
from pjepa.probes.ltcausal_stream import LTCausalMemory
from pjepa.probes.probe import Features, Segments
from pjepa.probes.published import LTCausalProbe
from pjepa.probes.sight import Sight
from pjepa.probes.temporal import TrainedProbe
from pjepa.state import State, numbers, part, under


class Memory(Protocol):
    """What a probe keeps of the tokens before."""

    @property
    def cache_bytes(self) -> int:
        """Its memory."""

    def probabilities(self, x: Tensor, segment: Tensor, commit: bool) -> Tensor:
        """[n, C] of the next tokens [n, D]; `commit`: they are remembered."""

    def state(self) -> State:
        """Everything that later tokens depend on."""

    def restore(self, state: State) -> None:
        """Continues where `state` was taken."""


class NoMemory:
    """A probe whose prediction of a token depends on that token alone."""

    cache_bytes = 0

    def __init__(self, probe: LinearProbe | TrainedProbe) -> None:
        self.probe = probe

    def probabilities(self, x: Tensor, segment: Tensor, commit: bool) -> Tensor:
        """[n, C] of tokens [n, D]."""
        if isinstance(self.probe, LinearProbe):
            return torch.from_numpy(self.probe.predict(x.cpu().numpy()))
        return self.probe.module.predict(x, segment)

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        return None


class ProbeStream:
    """One take that goes on: `push` returns probabilities [m, C] of the tokens that became final.

    Tokens come with their segment (ids only have to differ between neighbours).
    """

    def __init__(self, probe: LinearProbe | TrainedProbe, horizon: int | None = None) -> None:
        self.probe, self.sight = probe, probe.sight
        self.memory = _memory(probe, horizon)
        self.open = probe.mean.new_zeros(0, len(probe.mean))  # tokens that are not final
        self.segment = torch.zeros(0, dtype=torch.int64)
        self.count = 0  # tokens that are final

    @property
    def waiting(self) -> int:
        """Tokens whose prediction is not final."""
        return len(self.open)

    @property
    def cache_bytes(self) -> int:
        """Memory of caches and waiting tokens."""
        return self.memory.cache_bytes + self.open.nbytes

    @torch.inference_mode()
    def push(self, features: Features, segments: Segments, ended: bool = False) -> Features:
        """Probabilities [m, C] of the tokens that are final now, in order.

        `ended`: the last token's segment ended with it.
        """
        self._add(features, segments)
        return self._commit(self._final(ended))

    @torch.inference_mode()
    def peek(self, features: Features, segments: Segments) -> Features:
        """Probabilities of waiting tokens and of `features` after them, if the take ended there."""
        kept = self.open, self.segment
        self._add(features, segments)
        found = self.memory.probabilities(*self._inputs(self.waiting), commit=False)
        self.open, self.segment = kept
        return found.float().cpu().numpy()

    def finish(self) -> Features:
        """The take ended: probabilities of all waiting tokens."""
        with torch.inference_mode():
            return self._commit(self.waiting)

    def _add(self, features: Features, segments: Segments) -> None:
        if features.ndim != 2 or features.shape[1] != self.open.shape[1]:
            raise InputError(
                f"features are {list(features.shape)}, this probe takes [n, {self.open.shape[1]}]"
            )
        x = torch.from_numpy(np.array(features, np.float32)).to(self.open.device)
        self.open = torch.cat([self.open, x])
        self.segment = torch.cat([self.segment, torch.from_numpy(np.array(segments, np.int64))])

    def _final(self, ended: bool) -> int:
        """How many of the waiting tokens no later token can change."""
        count = self.waiting
        if self.sight.to == "segment" and count and not ended:
            changes = (self.segment[1:] != self.segment[:-1]).nonzero()
            return int(changes[-1]) + 1 if len(changes) else 0
        if self.sight.to == "block":
            return count - (self.count + count) % self.sight.block
        return count

    def _commit(self, final: int) -> Features:
        found = self.memory.probabilities(*self._inputs(final), commit=True)
        self.open, self.segment = self.open[final:], self.segment[final:]
        self.count += final
        return found.float().cpu().numpy()

    def _inputs(self, count: int) -> tuple[Tensor, Tensor]:
        """The first waiting tokens as the module wants them, scaled unless the probe does it."""
        x, segment = self.open[:count], self.segment[:count].to(self.open.device)
        if isinstance(self.probe, TrainedProbe):
            x = (x - self.probe.mean) / self.probe.std
        return x, segment

    def state(self) -> State:
        """Everything that later predictions depend on."""
        state = {"open": self.open, "segment": self.segment, "count": numbers(self.count)}
        return state | under("memory", self.memory.state())

    def restore(self, state: State) -> None:
        """Continues where `state` was taken; for a stream that has not begun."""
        self.open, self.segment = state["open"].to(self.open.device), state["segment"]
        self.count = int(state["count"])
        self.memory.restore(part("memory", state))


def _memory(probe: LinearProbe | TrainedProbe, horizon: int | None) -> Memory:
    """The memory a kind of probe needs, or a sentence why it cannot be streamed."""
    if probe.sight.whole_take:
        kind = probe.kind if isinstance(probe, TrainedProbe) else "linear"
        raise InputError(
            f"probe {kind} looks at the whole take before it says anything, so it cannot be "
            "streamed; use linear, foreground, attentive or ltcausal, or `pjepa predict`"
        )
    module = probe.module if isinstance(probe, TrainedProbe) else None
    if isinstance(module, AttentiveProbe):
        return AttentiveMemory(module)
    if isinstance(module, LTCausalProbe):
        assert isinstance(module.model, LTCausal)
        return LTCausalMemory(module.model, horizon)
    if probe.sight != Sight("token"):
        raise InputError(f"a probe that sees to the end of its {probe.sight.to} has no stream yet")
    return NoMemory(probe)
