"""Probes on a stream: every token's prediction as soon as it is final, equal to the offline one.

A prediction is final when everything it depends on has arrived (`Probe.sight`): with the token
itself, at the end of its fixed block, or at the end of its segment. Probes that see the whole take
are refused.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from pjepa.live.attentive_memory import AttentiveMemory
from pjepa.live.ltcausal_memory import LTCausalMemory
from pjepa.nn.state import State, numbers, part, under
from pjepa.probes.attentive.probe import AttentiveProbe
from pjepa.probes.base.probe import Features, SegmentIds
from pjepa.probes.base.sight import Sight
from pjepa.probes.base.temporal import TrainedProbe
from pjepa.probes.linear.probe import LinearProbe
from pjepa.probes.ltcausal.model import LTCausal
from pjepa.probes.ltcausal.probe import LTCausalProbe
from pjepa.ui.errors import InputError


class Memory(Protocol):
    """What a probe keeps of earlier tokens."""

    @property
    def cache_bytes(self) -> int:
        """Return the bytes held."""

    def probabilities(self, x: Tensor, segment: Tensor, commit: bool) -> Tensor:
        """Return probabilities [n, C] of the next tokens [n, D]; `commit` keeps the tokens."""

    def state(self) -> State:
        """Return everything that later tokens depend on."""

    def restore(self, state: State) -> None:
        """Resume from `state`."""


class NoMemory:
    """A probe whose prediction of a token depends on that token alone."""

    cache_bytes = 0

    def __init__(self, probe: LinearProbe | TrainedProbe) -> None:
        self.probe = probe

    def probabilities(self, x: Tensor, segment: Tensor, commit: bool) -> Tensor:
        """Return probabilities [n, C] of tokens [n, D]."""
        if isinstance(self.probe, LinearProbe):
            return torch.from_numpy(self.probe.predict(x.cpu().numpy()))
        return self.probe.module.predict(x, segment)

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        return None


class ProbeStream:
    """An ongoing take: `push` returns probabilities [m, C] of the tokens that became final.

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
        """Return the number of tokens whose prediction is not final."""
        return len(self.open)

    @property
    def cache_bytes(self) -> int:
        """Return the bytes of caches and waiting tokens."""
        return self.memory.cache_bytes + self.open.nbytes

    @torch.inference_mode()
    def push(self, features: Features, segments: SegmentIds, ended: bool = False) -> Features:
        """Return the probabilities [m, C] of the tokens that are final now, in order.

        `ended`: the last token's segment ended with it.
        """
        self._add(features, segments)
        return self._commit(self._final(ended))

    @torch.inference_mode()
    def peek(self, features: Features, segments: SegmentIds) -> Features:
        """Return probabilities of the waiting tokens and `features`, as if the take ended there."""
        kept = self.open, self.segment
        self._add(features, segments)
        found = self.memory.probabilities(*self._inputs(self.waiting), commit=False)
        self.open, self.segment = kept
        return found.float().cpu().numpy()

    def finish(self) -> Features:
        """End the take; return the probabilities of all waiting tokens."""
        with torch.inference_mode():
            return self._commit(self.waiting)

    def _add(self, features: Features, segments: SegmentIds) -> None:
        if features.ndim != 2 or features.shape[1] != self.open.shape[1]:
            raise InputError(
                f"features are {list(features.shape)}, this probe takes [n, {self.open.shape[1]}]"
            )
        x = torch.from_numpy(np.array(features, np.float32)).to(self.open.device)
        self.open = torch.cat([self.open, x])
        self.segment = torch.cat([self.segment, torch.from_numpy(np.array(segments, np.int64))])

    def _final(self, ended: bool) -> int:
        """Return how many of the waiting tokens no later token can change."""
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
        """Return the first waiting tokens, scaled unless the probe scales them itself."""
        x, segment = self.open[:count], self.segment[:count].to(self.open.device)
        if isinstance(self.probe, TrainedProbe):
            x = (x - self.probe.mean) / self.probe.std
        return x, segment

    def state(self) -> State:
        """Return everything that later predictions depend on."""
        state = {"open": self.open, "segment": self.segment, "count": numbers(self.count)}
        return state | under("memory", self.memory.state())

    def restore(self, state: State) -> None:
        """Resume from `state`; only for a stream that has not started."""
        self.open, self.segment = state["open"].to(self.open.device), state["segment"]
        self.count = int(state["count"])
        self.memory.restore(part("memory", state))


def _memory(probe: LinearProbe | TrainedProbe, horizon: int | None) -> Memory:
    """Return the memory this kind of probe needs; raise if it cannot be streamed."""
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
