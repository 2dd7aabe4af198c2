"""Labels of a token stream: encoder and probe, one after the other, each with its own memory."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass

import numpy as np

from pjepa.features.stream import EncoderStream
from pjepa.model.encoder import ProcedureEncoder
from pjepa.probes.linear import LinearProbe
from pjepa.probes.spans import JUMP
from pjepa.probes.stream import ProbeStream
from pjepa.probes.temporal import TrainedProbe
from pjepa.state import State, numbers, part, under
from pjepa.streams.online import OnlineSegments
from pjepa.streams.rule import SegmentRule


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
        self.spent = {"encoder": 0.0, "probe": 0.0}  # seconds

    @property
    def waiting(self) -> int:
        """Tokens whose label is not final."""
        return self.probe.waiting + (0 if self.encoder is None else self.encoder.waiting)

    @property
    def cache_bytes(self) -> int:
        """Memory of both."""
        return self.probe.cache_bytes + (0 if self.encoder is None else self.encoder.cache_bytes)

    def push(self, tokens: np.ndarray) -> np.ndarray:
        """Probabilities of the tokens that are final now."""
        started = time.perf_counter()
        if self.encoder is None:
            features, ids = tokens, self.segments.push(tokens, ends=False)[:, 0]
        else:
            features = self.encoder.push(tokens, ends=False).float().cpu().numpy()
            ids = self.encoder.newest
        return self._probed(features, ids, started)

    def end_segment(self) -> np.ndarray:
        """Someone says that the segment ended with the last token."""
        started = time.perf_counter()
        if self.encoder is None:
            self.segments.end()
            features, ids = self.probe.open[:0].cpu().numpy(), np.zeros(0, np.int64)
        else:
            features = self.encoder.end_segment().float().cpu().numpy()
            ids = self.encoder.newest
        return self._probed(features, ids, started)

    def peek(self) -> np.ndarray:
        """Probabilities of the tokens whose label is not final, as if the take ended here."""
        if self.encoder is None:
            features, ids = self.probe.open[:0].cpu().numpy(), np.zeros(0, np.int64)
        else:
            features = self.encoder.peek().float().cpu().numpy()
            ids = self.encoder.waiting_segments
        return self.probe.peek(features, ids)

    def finish(self) -> np.ndarray:
        """The take ended: probabilities of all tokens that waited."""
        found = []
        if self.encoder is not None:
            started = time.perf_counter()
            features = self.encoder.finish().float().cpu().numpy()
            found.append(self._probed(features, self.encoder.newest, started))
        return np.concatenate([*found, self.probe.finish()])

    def _probed(self, features: np.ndarray, ids: np.ndarray, started: float) -> np.ndarray:
        encoded = time.perf_counter()
        self.spent["encoder"] += encoded - started
        found = self.probe.push(features, ids, self._segment_ended(ids))
        self.spent["probe"] += time.perf_counter() - encoded
        return found

    def _segment_ended(self, ids: np.ndarray) -> bool:
        """Whether the last token that the probe has got ended its segment."""
        known = np.concatenate([self.probe.segment.numpy(), ids])
        if not len(known):
            return False
        following = [] if self.encoder is None else self.encoder.waiting_segments.tolist()
        return [*following, self.segments.segment][0] > int(known[-1])

    def state(self) -> State:
        """Everything that later labels depend on."""
        first = self.segments.state() if self.encoder is None else self.encoder.state()
        return under("encoder", first) | under("probe", self.probe.state())

    def restore(self, state: State) -> None:
        """Continues where `state` was taken; for a stream that has not begun."""
        first = self.segments if self.encoder is None else self.encoder
        first.restore(part("encoder", state))
        self.probe.restore(part("probe", state))


@dataclass(frozen=True)
class Decided:
    """One step of the procedure: a run of equal labels that nothing can change any more.

    Latencies count from the end of the step: `algorithmic_s` until the frames were there that
    decide it, `compute_s` from there until this line.
    """

    start: float
    end: float
    label: str
    score: float
    latency: float
    algorithmic_s: float
    compute_s: float

    def row(self) -> dict[str, object]:
        """As one JSON line."""
        return {k: round(v, 4) if isinstance(v, float) else v for k, v in asdict(self).items()}


class Runs:
    """Labels of tokens in, decided steps out; a jump in time ends a step."""

    def __init__(self, step_s: float) -> None:
        self.step_s = step_s
        self.label, self.start, self.last, self.score, self.count = -1, 0.0, 0.0, 0.0, 0

    def push(
        self, time_s: float, label: int, score: float
    ) -> tuple[float, float, int, float] | None:
        """Start, end, label and mean score of the step that this token ends, if it does."""
        found = None
        jumped = self.count and time_s - self.last > JUMP * self.step_s
        if self.count and (label != self.label or jumped):
            found = self.start, self.last + self.step_s if jumped else time_s, *self._mean()
        if not self.count or found:
            self.label, self.start, self.score, self.count = label, time_s, 0.0, 0
        self.last, self.score, self.count = time_s, self.score + score, self.count + 1
        return found

    def finish(self) -> tuple[float, float, int, float] | None:
        """The last step."""
        if not self.count:
            return None
        return self.start, self.last + self.step_s, *self._mean()

    def _mean(self) -> tuple[int, float]:
        return self.label, self.score / self.count

    def state(self) -> State:
        """The step that goes on."""
        return {"run": numbers(self.label, self.start, self.last, self.score, self.count)}

    def restore(self, state: State) -> None:
        """Continues where `state` was taken."""
        label, self.start, self.last, self.score, count = state["run"].tolist()
        self.label, self.count = int(label), int(count)
