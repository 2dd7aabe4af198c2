"""Labels of a token stream: an encoder followed by a probe, each with its own memory."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from pjepa.core.runs import JUMP
from pjepa.encoder.encoder import ProcedureEncoder
from pjepa.encoder.segments.online import OnlineSegments
from pjepa.encoder.segments.rule import SegmentRule
from pjepa.encoder.stream import EncoderStream
from pjepa.live.probe_stream import ProbeStream
from pjepa.nn.state import State, numbers, part, under
from pjepa.probes.base.temporal import TrainedProbe
from pjepa.probes.linear.probe import LinearProbe


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
            features, ids = tokens, self.segments.push(tokens, ends=False)[:, 0]
        else:
            features = self.encoder.push(tokens, ends=False).float().cpu().numpy()
            ids = self.encoder.newest
        return self._probed(features, ids, started)

    def end_segment(self) -> np.ndarray:
        """End the segment after the last token; return the probabilities that this makes final."""
        started = time.perf_counter()
        if self.encoder is None:
            self.segments.end()
            features, ids = self.probe.open[:0].cpu().numpy(), np.zeros(0, np.int64)
        else:
            features = self.encoder.end_segment().float().cpu().numpy()
            ids = self.encoder.newest
        return self._probed(features, ids, started)

    def begin_recording(self) -> np.ndarray:
        """Start a new recording with the next token: end the segment and restart its count."""
        found = self.end_segment()
        self.segments.forget()
        return found

    def peek(self) -> np.ndarray:
        """Return probabilities of the waiting tokens, as if the take ended here."""
        if self.encoder is None:
            features, ids = self.probe.open[:0].cpu().numpy(), np.zeros(0, np.int64)
        else:
            features = self.encoder.peek().float().cpu().numpy()
            ids = self.encoder.waiting_segments
        return self.probe.peek(features, ids)

    def finish(self) -> np.ndarray:
        """End the take; return the probabilities of all waiting tokens."""
        found = []
        if self.encoder is not None:
            started = time.perf_counter()
            features = self.encoder.finish().float().cpu().numpy()
            found.append(self._probed(features, self.encoder.newest, started))
        return np.concatenate([*found, self.probe.finish()])

    def _probed(self, features: np.ndarray, ids: np.ndarray, started: float) -> np.ndarray:
        encoded = time.perf_counter()
        self.spent["encoder"] += encoded - started
        self.newest = features
        found = self.probe.push(features, ids, self._segment_ended(ids))
        self.spent["probe"] += time.perf_counter() - encoded
        return found

    def _segment_ended(self, ids: np.ndarray) -> bool:
        """Return whether the last token given to the probe ended its segment."""
        known = np.concatenate([self.probe.segment.numpy(), ids])
        if not len(known):
            return False
        following = [] if self.encoder is None else self.encoder.waiting_segments.tolist()
        return [*following, self.segments.segment][0] > int(known[-1])

    def state(self) -> State:
        """Return everything that later labels depend on."""
        first = self.segments.state() if self.encoder is None else self.encoder.state()
        return under("encoder", first) | under("probe", self.probe.state())

    def restore(self, state: State) -> None:
        """Resume from `state`; only for a stream that has not started."""
        first = self.segments if self.encoder is None else self.encoder
        first.restore(part("encoder", state))
        self.probe.restore(part("probe", state))


@dataclass(frozen=True)
class Decided:
    """One decided step of the procedure: a run of equal labels that can no longer change.

    Latencies count from the end of the step: `algorithmic_s` until the frames that decide it had
    arrived, `compute_s` from then until this line was written.
    """

    start: float
    end: float
    label: str
    score: float
    latency: float
    algorithmic_s: float
    compute_s: float
    outlook: Mapping[str, object] = field(default_factory=dict)  # next step, progress, surprise

    def row(self) -> dict[str, object]:
        """Return the values of one JSON line; what a run has no outlook for is left out."""
        own = {k: v for k, v in vars(self).items() if k != "outlook"}
        return {k: round(v, 4) if isinstance(v, float) else v for k, v in own.items()} | {
            **self.outlook
        }


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
        found = None
        jumped = self.count and time_s - self.last > JUMP * self.step_s
        cut = bool(self.cuts) and time_s >= self.cuts[0] - self.step_s / 2
        self.cuts = self.cuts[cut:]
        if self.count and (label != self.label or jumped or cut):
            found = self.start, self.last + self.step_s if jumped else time_s, *self._mean()
        if not self.count or found:
            self.label, self.start, self.score, self.count = label, time_s, 0.0, 0
        self.last, self.score, self.count = time_s, self.score + score, self.count + 1
        return found

    def finish(self) -> tuple[float, float, int, float] | None:
        """Return the last step."""
        if not self.count:
            return None
        return self.start, self.last + self.step_s, *self._mean()

    def _mean(self) -> tuple[int, float]:
        return self.label, self.score / self.count

    def state(self) -> State:
        """Return the unfinished step."""
        run = numbers(self.label, self.start, self.last, self.score, self.count)
        return {"run": run, "cuts": numbers(*self.cuts)}

    def restore(self, state: State) -> None:
        """Resume from `state`."""
        label, self.start, self.last, self.score, count = state["run"].tolist()
        self.label, self.count, self.cuts = int(label), int(count), state["cuts"].tolist()
