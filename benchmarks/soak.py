"""Soak test: `python -m benchmarks.soak [--hours H] [--parallel N] [--videos N] [--json FILE]`.

In a project that was run (models/ and results/probe/). Three parts, each of which ends with an
error if what is promised does not hold:

- live: hours of video are piped into `pjepa stream -`, faster than they last, in parts whose time
  stamps begin anew (a camera that restarts), some with garbage among their packets. The process is
  starved until it gives up, killed, and started again with its state. Every second that was sent
  must be labelled, once, or lie between what was sent to a process that was lost and where the next
  one says that it resumes. Memory is that of the longest life: the reference is its peak in the
  first quarter.
- predict: so many at once; the reference is each video alone, whose files must be the same bytes.
- data (`benchmarks.soak_data`): `scan`, `check` and `takes` of many videos with ten labels each;
  the reference is a tenth of them, times ten.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import av
import numpy as np
import typer

from benchmarks.soak_data import measure_data
from benchmarks.workers import Table, row

PART_S, FPS, SIDE = 100, 12, 96  # of a film
PACKET, CHUNK, HIT = 188, 16, 40  # bytes; packets written at once; packets of garbage in a part
STALL_S, WAIT_S = 5.0, 1200.0
SLACK_S = 2.5  # a window that was not complete when a life ended
STEP_S = 0.5  # a jump completes the step that it cuts
PJEPA = [sys.executable, "-m", "pjepa"]


def write_film(path: Path, seconds: int, seed: int, form: str | None = None) -> Path:
    """A film whose colours change every few seconds."""
    draw = np.random.default_rng(seed)
    with av.open(str(path), "w", format=form) as container:
        stream = container.add_stream("libx264", rate=FPS, options={"g": str(FPS), "crf": "30"})
        stream.width = stream.height = SIDE
        stream.pix_fmt = "yuv420p"
        for number in range(seconds * FPS):
            if number % (4 * FPS) == 0:
                picture = np.kron(draw.integers(0, 255, (4, 4, 3)), np.ones((24, 24, 1)))
            frame = av.VideoFrame.from_ndarray(picture.astype(np.uint8), "rgb24")
            frame.pts, frame.time_base = number, Fraction(1, FPS)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def garbled(part: bytes, draw: np.random.Generator) -> bytes:
    """The part with noise in place of some packets between its first and its last seconds."""
    packets = len(part) // PACKET
    found = bytearray(part)
    for place in draw.integers(packets // 10, packets * 9 // 10, HIT):
        found[place * PACKET : (place + 1) * PACKET] = draw.bytes(PACKET)
    return bytes(found)


@dataclass
class Life:
    """One process: how it ended, what it was sent, where it began and what it said."""

    end: str  # stalled, killed or ended
    parts: int
    begin_s: float = 0.0
    jumps: list[float] = field(default_factory=list)  # seconds, as it says them
    summary: dict[str, float] = field(default_factory=dict)
    memory: list[float] = field(default_factory=list)  # MB, once a second

    @property
    def sent_s(self) -> float:
        return float(self.parts * PART_S)

    @property
    def by_garbage(self) -> list[float]:
        """The jumps that are no restarts: those go back by a whole part."""
        return [jump for jump in self.jumps if abs(jump) < PART_S / 2]

    def check(self) -> None:
        """Every second that was sent is there; what garbage took or gave was said."""
        found = self.summary["video_s"] - self.begin_s
        off = abs(found - (self.sent_s - sum(self.by_garbage)))
        if off > SLACK_S + STEP_S * len(self.jumps):
            raise SystemExit(f"{self.end}: {off:.1f} s of {self.sent_s:.0f} s are unaccounted for")
        if len(self.jumps) - len(self.by_garbage) != self.parts - 1:
            raise SystemExit(f"{self.end}: jumps {self.jumps} said, {self.parts} parts sent")


def lives_of(hours: float) -> list[Life]:
    """A starved one, a killed one, and one that lives as long as both and more."""
    parts = max(6, round(hours * 3600 / PART_S))
    early = max(2, parts // 4)
    return [Life("stalled", early), Life("killed", early), Life("ended", parts - 2 * early)]


class Soak:
    """Runs lives one after the other on one file of steps and one state."""

    def __init__(self, folder: Path, speed: float) -> None:
        self.folder, self.speed = folder, speed
        self.steps, self.state = folder / "steps.jsonl", folder / "state"
        self.part = write_film(folder / "part.ts", PART_S, 0, "mpegts").read_bytes()
        self.draw = np.random.default_rng(0)

    def live(self, life: Life) -> None:
        """Feeds one process until its end."""
        summary, errors = self.folder / "summary.json", self.folder / "errors.txt"
        before = self.rows()[-1]["end"] if self.steps.exists() else 0.0
        summary.unlink(missing_ok=True)
        command = [
            *PJEPA, "stream", "-", "--every-frame", "--segments", "fixed", "--horizon", "512",
            "--threads", "1", "--device", "cpu", "--stall", str(STALL_S), "--state", self.state,
            "--jsonl", self.steps, "--summary", summary,
        ]  # fmt: skip
        with errors.open("wb") as log, remembered(life, command, log) as process:
            assert process.stdin is not None
            for number in range(life.parts):
                sent = garbled(self.part, self.draw) if number == 1 else self.part
                self.send(process, sent)
            if life.end == "killed":
                self.wait_for_steps(before + 0.6 * life.sent_s)
                process.kill()
            elif life.end == "ended":
                process.stdin.close()
            process.wait(WAIT_S)
        said = errors.read_text()
        resumes = re.findall(r"resumes at ([\d.]+) s", said)
        life.begin_s = float(resumes[0]) if resumes else 0.0
        life.jumps = [float(by) for by in re.findall(r"stamps jump by ([-+\d.]+) s", said)]
        life.summary = json.loads(summary.read_text()) if summary.exists() else {}
        if process.returncode != {"stalled": 1, "killed": -9, "ended": 0}[life.end]:
            raise SystemExit(f"{life.end}: exit code {process.returncode}\n{said[-2000:]}")

    def send(self, process: subprocess.Popen[bytes], part: bytes) -> None:
        """Writes a part at `speed` times its own pace."""
        assert process.stdin is not None
        started, size = time.monotonic(), CHUNK * PACKET
        for first in range(0, len(part), size):
            due = started + PART_S / self.speed * first / len(part)
            time.sleep(max(0.0, due - time.monotonic()))
            process.stdin.write(part[first : first + size])
        process.stdin.flush()

    def rows(self) -> list[dict[str, float]]:
        """The steps that are on the disk; the last line may be half written."""
        lines = self.steps.read_bytes().split(b"\n")[:-1] if self.steps.exists() else []
        return [json.loads(line) for line in lines]

    def wait_for_steps(self, until_s: float) -> None:
        deadline = time.monotonic() + WAIT_S
        while not (found := self.rows()) or found[-1]["end"] < until_s:
            if time.monotonic() > deadline:
                raise SystemExit(f"no step ends after {until_s} s")
            time.sleep(0.2)


@contextmanager
def remembered(life: Life, command: list[object], log: object) -> Iterator[subprocess.Popen[bytes]]:
    """The process, whose memory is looked at every second; never left behind."""
    process = subprocess.Popen(
        [str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=log,  # type: ignore[call-overload]
    )  # fmt: skip

    def look() -> None:
        status = Path(f"/proc/{process.pid}/status")
        while process.poll() is None:
            for line in status.read_text().splitlines():
                if line.startswith("VmRSS"):
                    life.memory.append(int(line.split()[1]) / 1024)
            time.sleep(1.0)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        watcher.join()


def check_rows(rows: list[dict[str, float]]) -> None:
    """Every second once: steps begin at 0 and each where the one before ends."""
    if rows[0]["start"] != 0:
        raise SystemExit(f"the first step begins at {rows[0]['start']} s")
    for before, after in pairwise(rows):
        if before["end"] != after["start"]:
            raise SystemExit(f"a hole from {before['end']} to {after['start']} s")


def measure_live(table: Table, hours: float, speed: float, folder: Path) -> None:
    """Live video of so many hours, with all that goes wrong with it."""
    soak, lives = Soak(folder, speed), lives_of(hours)
    for life in lives:
        soak.live(life)
    check_rows(soak.rows())
    lost = {}
    for life, after in pairwise(lives):
        lost[life.end] = life.begin_s + life.sent_s - after.begin_s
    for life in lives:
        if life.summary:  # a killed one has none
            life.check()
    sent, labelled = sum(life.sent_s for life in lives), soak.rows()[-1]["end"]
    table.add("live: seconds labelled, of those sent", row(labelled, sent, "s"))
    for end, seconds in lost.items():
        table.add(f"live: seconds sent to the {end} process, not resumed", row(seconds, sent, "s"))
    jumps = sum(len(life.jumps) for life in lives)
    parts = sum(life.parts - 1 for life in lives)
    table.add("live: jumps said, of restarts; garbage adds some", row(jumps, parts, ""))
    memory = lives[-1].memory
    quarter = memory[: max(1, len(memory) // 4)]
    table.add("live: peak memory, the first quarter beside", row(max(memory), max(quarter), "MB"))


def measure_predict(table: Table, count: int, folder: Path) -> None:
    """So many `predict` at once, each compared with the same video alone."""
    videos = [write_film(folder / f"film{k}.mp4", 8, k) for k in range(min(3, count))]

    def started(video: Path, out: Path) -> subprocess.Popen[bytes]:
        line = [*PJEPA, "predict", str(video), "--out", str(out), "--segments", "fixed"]
        options = ["--threads", "1", "--device", "cpu", "--format", "vtt", "--format", "eaf"]
        return subprocess.Popen([*line, *options], stdout=subprocess.DEVNULL)

    begun = time.monotonic()
    alone = []
    for number, video in enumerate(videos):
        if started(video, folder / f"alone{number}").wait(WAIT_S):
            raise SystemExit(f"predict {video} fails alone")
        alone.append(files_of(folder / f"alone{number}"))
    each = (time.monotonic() - begun) / len(videos)
    begun = time.monotonic()
    crowd = [started(videos[n % len(videos)], folder / f"crowd{n}") for n in range(count)]
    codes = [process.wait(WAIT_S) for process in crowd]
    seconds = time.monotonic() - begun
    same = [files_of(folder / f"crowd{n}") == alone[n % len(videos)] for n in range(count)]
    if any(codes) or not all(same):
        raise SystemExit(f"predict: exit codes {codes}, equal to alone {same}")
    table.add(f"predict: {count} at once, equal to alone", row(sum(same), count, ""))
    table.add(
        f"predict: {count} at once, one after the other beside", row(seconds, count * each, "s")
    )


def files_of(folder: Path) -> dict[str, bytes]:
    """What was predicted, by name; hidden files are of the work, not of the result."""
    files = [path for path in folder.glob("[!.]*") if path.is_file()]
    return {path.name: path.read_bytes() for path in files}


def main(
    hours: Annotated[float, typer.Option(min=0, help="Of live video; 0: none.")] = 2.0,
    speed: Annotated[float, typer.Option(min=1, help="How much faster it is sent.")] = 30.0,
    parallel: Annotated[int, typer.Option(min=0, help="Predictions at once.")] = 50,
    videos: Annotated[int, typer.Option(min=0, help="Of the source that is scanned.")] = 20_000,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write it.")] = None,
) -> None:
    """Run the three parts and print what they measure."""
    table = Table()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if hours:
            measure_live(table, hours, speed, folder)
        if parallel:
            measure_predict(table, parallel, folder)
        if videos:
            measure_data(table, videos, folder)
    table.save(json_file)


if __name__ == "__main__":
    typer.run(main)
