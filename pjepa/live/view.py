"""The display of a live session: an in-place view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.text import Text

from pjepa.live.labels import Decided
from pjepa.ui.console import say

COLORS = ("cyan", "magenta", "yellow", "green", "blue", "red", "white")
BAR = 60  # characters of the timeline


@dataclass
class LiveNumbers:
    """The current numbers."""

    time_s: float = 0.0
    duration_s: float | None = None
    current: str = "-"
    score: float = 0.0
    speed: float = 0.0  # seconds of video per second
    fps: float = 0.0  # frames shown to the backbone a second
    algorithmic_s: float = 0.0
    compute_s: float = 0.0
    dropped: int = 0
    outlook: Mapping[str, object] = field(default_factory=dict)
    steps: deque[Decided] = field(default_factory=lambda: deque(maxlen=512))


class LiveView:
    """The live page of a terminal: `update(shown)` redraws it, `decided(step)` adds a finished
    step.
    """

    def __init__(self, quiet: bool = False, lines: bool = True) -> None:
        self.console = Console(stderr=True)
        self.live: Live | None = None
        self.quiet, self.lines = quiet, lines and not quiet
        self.colors: dict[str, str] = {}

    def __enter__(self) -> LiveView:
        if self.console.is_terminal and not self.quiet:
            self.live = Live(Text(""), console=self.console, refresh_per_second=8)
            self.live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self.live is not None:
            self.live.stop()

    def decided(self, step: Decided) -> None:
        """Print one line for a step: on stdout, or above the view if both share a terminal."""
        if self.lines and self.live is not None and sys.stdout.isatty():
            self.console.print(escape(decided_line(step)), highlight=False)
        elif self.lines:
            print(decided_line(step), flush=True)

    def update(self, shown: LiveNumbers) -> None:
        """Redraw the view, if there is one."""
        if self.live is not None:
            self.live.update(self.drawn(shown))

    def note(self, message: str) -> None:
        """Print a note on stderr."""
        if self.live is not None:
            self.console.print(escape(message), highlight=False)
        elif not self.quiet:
            say(message)

    def drawn(self, shown: LiveNumbers) -> Group:
        """Return the view: current step, timeline so far, progress, pace and latency."""
        whole = f" of {clock(shown.duration_s)}" if shown.duration_s else ""
        lost = f", {shown.dropped} frames dropped" if shown.dropped else ""
        now = Text.assemble(
            ("now  ", "dim"), (shown.current, f"bold {self._color(shown.current)}"),
            (f"  {shown.score:.2f}" if shown.score else "", "dim"),
        )  # fmt: skip
        pace = (
            f"{clock(shown.time_s)}{whole}   {shown.speed:.1f}x real time, {shown.fps:.1f} fps   "
            f"latency {shown.algorithmic_s:.2f} s + {1e3 * shown.compute_s:.0f} ms compute{lost}"
        )
        ahead = Text(outlook_line(shown.outlook))
        return Group(now, *([ahead] if ahead else []), self._timeline(shown), Text(pace, "dim"))

    def _timeline(self, shown: LiveNumbers) -> Text:
        """Return all decided time as one bar, a colour for every label."""
        bar = Text("     ")
        if not shown.steps or not shown.time_s:
            return bar
        first = shown.steps[0].start
        scale = BAR / max(shown.time_s - first, 1e-9)
        for step in shown.steps:
            width = round((step.end - first) * scale) - round((step.start - first) * scale)
            bar.append("█" * width, self._color(step.label))
        return bar

    def _color(self, label: str) -> str:
        return self.colors.setdefault(label, COLORS[len(self.colors) % len(COLORS)])


def decided_line(step: Decided) -> str:
    """Return a line such as `0:12.25  0:15.50  label  0.83  latency 2.05 s + 31 ms`."""
    return (
        f"{clock(step.start):>10}  {clock(step.end):>10}  {' '.join(step.label.split())}  "
        f"{step.score:.2f}  latency {step.algorithmic_s:.2f} s + {1e3 * step.compute_s:.0f} ms"
        + (f"  {ahead}" if (ahead := outlook_line(step.outlook)) else "")
    )


def outlook_line(outlook: Mapping[str, object]) -> str:
    """Return text such as `next pour 0.61, 40 % done, surprise 0.12`; empty if nothing is known."""
    texts = {
        "next": "next {next} {next_score:.2f}",
        "progress": "{progress:.0%} done",
        "surprise": "surprise {surprise:.2f}",
    }
    line = ", ".join(text.format(**outlook) for name, text in texts.items() if name in outlook)
    return " ".join(line.split())


def clock(seconds: float) -> str:
    """Return the time as `1:02:03.25` or `2:03.25`."""
    minutes, rest = divmod(round(seconds, 2), 60)
    hours, minutes = divmod(int(minutes), 60)
    return f"{hours}:{minutes:02d}:{rest:05.2f}" if hours else f"{minutes}:{rest:05.2f}"
