"""Labels of a token stream: an encoder followed by a probe, each with its own memory."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pjepa.core.runs import JUMP
from pjepa.live.formats import PredictedStep
from pjepa.live.memories import AttentiveMemory, LTCausalMemory
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.segments import OnlineSegments, SegmentRule
from pjepa.model.stream import EncoderStream
from pjepa.probes.attentive.probe import AttentiveProbe
from pjepa.probes.base.scoring import Features, SegmentIds, Sight
from pjepa.probes.base.trained import TrainedProbe
from pjepa.probes.linear.probe import LinearProbe
from pjepa.probes.ltcausal.probe import LTCausal
from pjepa.storage.saver import State, numbers, part, under
from pjepa.ui.console import InputError

NO_SEGMENTS = np.zeros(0, np.int64)

# Probes on a stream: every token's prediction as soon as it is final, equal to the offline one.


def on_host(x: Tensor) -> np.ndarray:
    """Return the values as float32 in the host's memory."""
    return x.float().cpu().numpy()


# What a probe keeps of earlier tokens; None: it predicts every token alone.
Memory = AttentiveMemory | LTCausalMemory | None


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
        kept = 0 if self.memory is None else self.memory.cache_bytes
        return kept + self.open.nbytes

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
        before = self.open, self.segment
        self._add(features, segments)
        probabilities = self._probabilities(self.waiting, commit=False)
        self.open, self.segment = before
        return probabilities

    @torch.inference_mode()
    def finish(self) -> Features:
        """End the take; return the probabilities of all waiting tokens."""
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
        probabilities = self._probabilities(final, commit=True)
        self.open, self.segment = self.open[final:], self.segment[final:]
        self.count += final
        return probabilities

    def _probabilities(self, count: int, commit: bool) -> Features:
        """Return the probabilities of the first waiting tokens; `commit`: they are final."""
        x, segment = self.open[:count], self.segment[:count]
        if self.memory is None:
            return self.probe.predict(x.cpu().numpy(), segment.numpy())
        x = (x - self.probe.mean) / self.probe.std
        return on_host(self.memory.probabilities(x, segment.to(x.device), commit))

    def state(self) -> State:
        """Return everything that later predictions depend on."""
        state = {"open": self.open, "segment": self.segment, "count": numbers(self.count)}
        return state | ({} if self.memory is None else under("memory", self.memory.state()))

    def restore(self, state: State) -> None:
        """Resume from `state`; only for a stream that has not started."""
        self.open, self.segment = state["open"].to(self.open.device), state["segment"]
        self.count = int(state["count"])
        if self.memory is not None:
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
    if isinstance(module, LTCausal):
        return LTCausalMemory(module, horizon)
    if probe.sight != Sight("token"):
        raise InputError(f"a probe that sees to the end of its {probe.sight.to} has no stream yet")
    return None


class LabelStream:
    """Tokens in; probabilities [m, C] of the tokens whose label is final out, in order.

    Without an encoder the probe reads the tokens themselves (representation `raw`).
    """

    def __init__(
        self,
        encoder: ProcedureEncoder | None,
        probe: LinearProbe | TrainedProbe,
        rule: SegmentRule,
        horizon: int | None = None,
    ) -> None:
        self.encoder = None if encoder is None else EncoderStream(encoder, horizon, rule)
        self.segments = OnlineSegments(rule) if self.encoder is None else self.encoder.segments
        self.probe = ProbeStream(probe, horizon)
        self.newest = np.zeros((0, len(probe.mean)), np.float32)  # features last given to the probe
        self.spent = {"encoder": 0.0, "probe": 0.0}  # seconds

    @property
    def waiting(self) -> int:
        """Return the number of tokens whose label is not final."""
        return self.probe.waiting + (0 if self.encoder is None else self.encoder.waiting)

    @property
    def cache_bytes(self) -> int:
        """Return the bytes held by both."""
        return self.probe.cache_bytes + (0 if self.encoder is None else self.encoder.cache_bytes)

    def push(self, tokens: np.ndarray) -> np.ndarray:
        """Return the probabilities of the tokens that are final now."""
        started = time.perf_counter()
        if self.encoder is None:
            return self._probed(tokens, self.segments.push(tokens, ends=False)[:, 0], started)
        features = on_host(self.encoder.push(tokens, ends=False))
        return self._probed(features, self.encoder.newest, started)

    def end_segment(self) -> np.ndarray:
        """End the segment after the last token; return the probabilities that this makes final."""
        started = time.perf_counter()
        if self.encoder is None:
            self.segments.end()
            return self._probed(self.newest[:0], NO_SEGMENTS, started)
        features = on_host(self.encoder.end_segment())
        return self._probed(features, self.encoder.newest, started)

    def begin_recording(self) -> np.ndarray:
        """Start a new recording with the next token: end the segment and restart its count."""
        probabilities = self.end_segment()
        self.segments.forget()
        return probabilities

    def peek(self) -> np.ndarray:
        """Return probabilities of the waiting tokens, as if the take ended here."""
        if self.encoder is None:
            return self.probe.peek(self.newest[:0], NO_SEGMENTS)
        return self.probe.peek(on_host(self.encoder.peek()), self.encoder.waiting_segments)

    def finish(self) -> np.ndarray:
        """End the take; return the probabilities of all waiting tokens."""
        started, features, ids = time.perf_counter(), self.newest[:0], NO_SEGMENTS
        if self.encoder is not None:
            features, ids = on_host(self.encoder.finish()), self.encoder.newest
        return np.concatenate([self._probed(features, ids, started), self.probe.finish()])

    def _probed(self, features: np.ndarray, ids: np.ndarray, started: float) -> np.ndarray:
        """Return the probabilities that these features of segments `ids` make final."""
        encoded = time.perf_counter()
        self.spent["encoder"] += encoded - started
        self.newest = features
        probabilities = self.probe.push(features, ids, self._segment_ended(ids))
        self.spent["probe"] += time.perf_counter() - encoded
        return probabilities

    def _segment_ended(self, ids: np.ndarray) -> bool:
        """Return whether the last token given to the probe ended its segment."""
        given = np.concatenate([self.probe.segment.numpy(), ids])
        if not len(given):
            return False
        following = [] if self.encoder is None else self.encoder.waiting_segments.tolist()
        return [*following, self.segments.segment][0] > int(given[-1])

    def state(self) -> State:
        """Return everything that later labels depend on."""
        first = self.segments.state() if self.encoder is None else self.encoder.state()
        return under("encoder", first) | under("probe", self.probe.state())

    def restore(self, state: State) -> None:
        """Resume from `state`; only for a stream that has not started."""
        first = self.segments if self.encoder is None else self.encoder
        first.restore(part("encoder", state))
        self.probe.restore(part("probe", state))


@dataclass(frozen=True, kw_only=True)
class Decided(PredictedStep):
    """One decided step of the procedure: a run of equal labels that can no longer change.

    Latencies count from the end of the step: `algorithmic_s` until the frames that decide it had
    arrived, `compute_s` from then until this line was written.
    """

    algorithmic_s: float
    compute_s: float

    @property
    def latency(self) -> float:
        return self.algorithmic_s + self.compute_s

    def row(self) -> dict[str, object]:
        """Return the values of one JSON line; what a run has no outlook for is left out."""
        names = ("start", "end", "label", "score", "latency", "algorithmic_s", "compute_s")
        values = {name: getattr(self, name) for name in names}
        rounded = {k: round(v, 4) if isinstance(v, float) else v for k, v in values.items()}
        return {**rounded, **self.outlook}


class StepRuns:
    """Labels of tokens in, decided steps out; a jump in time or a cut ends a step."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s
        self.cuts: list[float] = []  # times of tokens that begin a new recording
        self.label, self.start, self.last, self.score, self.count = -1, 0.0, 0.0, 0.0, 0

    def push(
        self, time_s: float, label: int, score: float
    ) -> tuple[float, float, int, float] | None:
        """Return start, end, label and mean score of the step that this token ends, if any."""
        ended = None
        jumped = self.count and time_s - self.last > JUMP * self.step_s
        cut = bool(self.cuts) and time_s >= self.cuts[0] - self.step_s / 2
        self.cuts = self.cuts[cut:]
        if self.count and (label != self.label or jumped or cut):
            ended = self.start, self.last + self.step_s if jumped else time_s, *self.present()
        if not self.count or ended:
            self.label, self.start, self.score, self.count = label, time_s, 0.0, 0
        self.last, self.score, self.count = time_s, self.score + score, self.count + 1
        return ended

    def finish(self) -> tuple[float, float, int, float] | None:
        """Return the last step."""
        if not self.count:
            return None
        return self.start, self.last + self.step_s, *self.present()

    def present(self) -> tuple[int, float]:
        """Return label and mean score of the step that goes on; -1 without one."""
        return self.label, self.score / max(self.count, 1)

    def state(self) -> State:
        """Return the unfinished step."""
        run = numbers(self.label, self.start, self.last, self.score, self.count)
        return {"run": run, "cuts": numbers(*self.cuts)}

    def restore(self, state: State) -> None:
        """Resume from `state`."""
        label, self.start, self.last, self.score, count = state["run"].tolist()
        self.label, self.count, self.cuts = int(label), int(count), state["cuts"].tolist()
