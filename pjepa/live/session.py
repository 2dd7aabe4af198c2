"""A live session: from a source to decided steps, until it ends, stalls or is interrupted."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

import numpy as np

from pjepa.core.tables import MAX_GAP_S
from pjepa.core.time import TIME_TOLERANCE
from pjepa.live.labels import Decided, LabelStream, StepRuns
from pjepa.live.models import Models
from pjepa.live.outlook import OutlookStream
from pjepa.live.source import PIPE, STDOUT, Hop, LiveSource, Pipe
from pjepa.live.tokens import TimedTokens, TokenStream
from pjepa.live.view import LiveNumbers, LiveView
from pjepa.patches.encode import open_take
from pjepa.storage.saver import (
    State,
    has_state,
    load_state,
    numbers,
    part,
    remove_state,
    save_state,
    under,
)
from pjepa.ui.console import InputError

SAVE_S = 5.0  # seconds between two saved states, or
SAVE_SHARE = 0.05  # of the time, where a long history takes long to write
LATENCIES = 100_000  # newest tokens that the summary's percentiles are about
SIGNALS = (signal.SIGINT, signal.SIGTERM)  # Ctrl-C; the signal that stops services


@dataclass(frozen=True)
class Options:
    """How a session runs."""

    live: bool = False
    horizon: int | None = None
    stall_s: float = 30.0
    jsonl: Path | None = None  # a file, or - for standard output
    state: Path | None = None
    quiet: bool = False
    max_gap_s: float = MAX_GAP_S  # stamps that are further apart begin a new recording


class Session:
    """Frames to labels; everything it remembers can be saved and restored."""

    def __init__(
        self, models: Models, name: str, options: Options, pipe: Pipe | None = None
    ) -> None:
        self.models, self.name, self.options = models, name, options
        self.labels = LabelStream(models.encoder, models.probe, models.rule, options.horizon)
        step_s = 1 / (models.patches.tokens_fps * models.pooler.facts.per_step)
        names = models.classes.names
        self.runs = StepRuns(step_s)
        self.ahead = OutlookStream(models.outlook, self.labels.encoder, names, step_s)
        self.times = np.zeros(0)  # of tokens without a final label
        self.next_step = 0  # steps before it became tokens
        self.arrived = 0.0  # when the frames came that are being labelled
        self.lines: BinaryIO | None = None  # JSON, and how many bytes of it
        self.written = 0
        self.jumps = 0  # of the time stamps, since the start or the restart
        kinds = ("algorithmic", "compute")
        self.latencies = {kind: deque[float](maxlen=LATENCIES) for kind in kinds}
        text = str(options.jsonl) != STDOUT  # one kind of line there is enough
        self.view, self.shown, self.next_save = LiveView(options.quiet, text), LiveNumbers(), 0.0
        if options.state is not None and has_state(options.state):
            self._restore(options.state)
        self.tokens = TokenStream(
            models.backbone, models.pooler, models.patches, models.pooled, self.next_step
        )
        self.source = self._source(pipe)

    def _source(self, pipe: Pipe | None) -> LiveSource:
        """Open the source; a file resumes where the saved state ends, with the frames before it."""
        grid, done = self.tokens.grid, self.next_step
        hop, piped = grid.hop, self.name == PIPE
        context = self.models.patches.steps - hop
        start = 0 if piped else max(0, done - context) // hop * hop
        config, gap = self.models.patches, self.options.max_gap_s
        return LiveSource(
            self.name, grid, self.models.backbone.prepared, self.options.live,
            self.options.stall_s, start, done if piped else 0, pipe,
            None if piped else open_take(Path(self.name), config, gap), gap,
        )  # fmt: skip

    def run(self) -> dict[str, Any]:
        """Run to the end and return a summary (JSON values)."""
        started = time.monotonic()
        with self.view, _lines(self.options.jsonl, self.written) as self.lines:
            if self.lines is not None and self.lines is not sys.stdout.buffer:
                self.written = self.lines.tell()
            for note in self.models.notes:
                self.view.note(f"note: {note}")
            with _interrupt(self.source):
                for hop in self.source.hops():
                    self._take(hop)
                    self._show(time.monotonic() - started)
                    self._save()
                self._finish()
        return self._summary(time.monotonic() - started)

    def _take(self, hop: Hop) -> None:
        """Label the tokens of these frames; no window, segment or step crosses a jump in time."""
        self.arrived = hop.arrived if self.options.live else time.monotonic()
        if hop.jump is not None and hop.start >= self.next_step:
            self.view.note(f"{hop.jump}: a new recording begins there")
            self.jumps += 1
            self._label(self.tokens.finish())
            self._decide(self.labels.begin_recording())
            self.runs.cuts.append(hop.start / self.models.patches.tokens_fps)
        self._label(self.tokens.push(hop))

    def _label(self, complete: list[TimedTokens]) -> None:
        for tokens in complete:
            self.times = np.concatenate([self.times, tokens.times_s])
            rate = self.models.patches.tokens_fps
            self.next_step = int(tokens.times_s[-1] * rate + TIME_TOLERANCE) + 1
            self.shown.time_s = tokens.until_s
            self._decide(self.labels.push(tokens.features))

    def _decide(self, probabilities: np.ndarray) -> None:
        """Write the steps that the oldest waiting tokens decide, now that they are final."""
        final, self.times = np.split(self.times, [len(probabilities)])
        compute = time.monotonic() - self.arrived
        self.ahead.see(self.labels.newest)
        for moment, row in zip(final.tolist(), probabilities, strict=True):
            self.latencies["algorithmic"].append(self.shown.time_s - moment)
            self.latencies["compute"].append(compute)
            best = int(row.argmax())
            self._write(self.runs.push(moment, best, float(row[best])))
            self.ahead.token()

    def _write(self, run: tuple[float, float, int, float] | None) -> None:
        """Write a decided step."""
        if run is None:
            return
        start, end, label, score = run
        step = Decided(
            start, end, self.models.classes.names[label], score, self.ahead.step(),
            algorithmic_s=max(0.0, self.shown.time_s - end),
            compute_s=time.monotonic() - self.arrived,
        )  # fmt: skip
        if self.lines is not None:
            self.written += self.lines.write((json.dumps(step.row()) + "\n").encode())
            self.lines.flush()
        self.shown.steps.append(step)
        self.view.decided(step)

    def _finish(self) -> None:
        """End the take: label all waiting tokens and end the last step.

        A source that was cut short may resume after a restart, so its state is saved first.
        """
        ended = self.source.status == "ended"
        if not ended:
            self._save(now=True)
        self.arrived = time.monotonic()
        self._label(self.tokens.finish())
        self._decide(self.labels.finish())
        self._write(self.runs.finish())
        if ended and self.options.state is not None:  # nothing to go on with
            remove_state(self.options.state)

    def _show(self, seconds: float) -> None:
        """Redraw the view; the present step is provisional: it is only displayed."""
        if self.view.live is None:
            return
        shown, source = self.shown, self.source
        shown.duration_s, shown.dropped = source.duration_s, source.dropped
        shown.fps = source.frames / max(seconds, 1e-9)
        shown.speed = shown.fps / source.grid.fps
        shown.algorithmic_s = shown.time_s - float(self.times[0]) if len(self.times) else 0.0
        shown.compute_s = next(reversed(self.latencies["compute"]), 0.0)
        shown.outlook = self.ahead.now()
        label, shown.score = self.runs.present()
        if self.labels.waiting and len(waiting := self.labels.peek()):
            label, shown.score = int(waiting[-1].argmax()), float(waiting[-1].max())
        shown.current = "-" if label < 0 else self.models.classes.names[label]
        self.view.update(shown)

    def _summary(self, seconds: float) -> dict[str, Any]:
        return {
            "source": self.name,
            "status": self.source.status,
            "video_s": self.shown.time_s,
            "wall_s": seconds,
            "speed": self.source.frames / self.source.grid.fps / max(seconds, 1e-9),
            "frames": self.source.frames,
            "dropped": self.source.dropped,
            "damaged": self.source.damaged,
            "jumps": self.jumps,
            "spent_s": {**self.tokens.spent, **self.labels.spent},
            "cache_bytes": self.labels.cache_bytes,
            "window_s": self.tokens.lookahead_s,
            "latency_s": {
                kind: {f"p{q}": float(np.percentile(values, q)) for q in (50, 95)}
                for kind, values in self.latencies.items()
                if values
            },
        }

    def _about(self) -> dict[str, Any]:
        """Return the source, models and settings that a saved state belongs to."""
        models, encoder = self.models, self.labels.encoder
        return {
            "source": self.name,
            "horizon": self.options.horizon,
            "encoder": None if encoder is None else encoder.about(),
            "weights": models.hashes,
            "patches": models.patches.model_dump(mode="json"),
            "pooled": models.pooled,
        }

    def _save(self, now: bool = False) -> None:
        """Save the state every few seconds, or now; the lines it counts are on disk first."""
        folder, started = self.options.state, time.monotonic()
        if folder is None or not (now or started >= self.next_save):
            return
        if self.lines is not None and self.lines is not sys.stdout.buffer:
            os.fsync(self.lines.fileno())
        save_state(folder, self.state(), self._about())
        saved = time.monotonic()
        self.next_save = saved + max(SAVE_S, (saved - started) / SAVE_SHARE)

    def state(self) -> State:
        """Return everything that later lines depend on."""
        counts = numbers(self.next_step, self.written, self.shown.time_s)
        own: State = {"counts": counts, "times": numbers(*self.times.tolist())}
        own |= under("labels", self.labels.state()) | under("runs", self.runs.state())
        return own | under("ahead", self.ahead.state())

    def _restore(self, folder: Path) -> None:
        state, about = load_state(folder)
        if about != json.loads(json.dumps(self._about())):
            raise InputError(
                f"{folder}: the state of another source, model or setting; remove it or choose "
                "another --state"
            )
        step, written, self.shown.time_s = state["counts"].tolist()
        self.next_step, self.written = int(step), int(written)
        self.times = state["times"].numpy().copy()
        self.labels.restore(part("labels", state))
        self.runs.restore(part("runs", state))
        self.ahead.restore(part("ahead", state))
        self.view.note(f"resumes at {self.next_step / self.models.patches.tokens_fps:.2f} s")


@contextmanager
def _lines(path: Path | None, written: int) -> Iterator[BinaryIO | None]:
    """Open the JSON lines; a resumed session truncates what came after its saved state."""
    if path is None or str(path) == STDOUT:
        yield None if path is None else sys.stdout.buffer
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("r+b" if path.exists() else "wb") as file:
        kept = min(written, file.seek(0, os.SEEK_END))  # less if lines were removed
        file.truncate(kept)
        file.seek(kept)
        yield file


@contextmanager
def _interrupt(source: LiveSource) -> Iterator[None]:
    """Stop the source on Ctrl-C, so that all output is completed; exit at once on a second one."""
    before: dict[int, Any] = {}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def stop(number: int, frame: FrameType | None) -> None:
        source.stop()
        restore()

    with suppress(ValueError):  # outside the main thread signals do not arrive
        for number in SIGNALS:
            before[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        restore()
