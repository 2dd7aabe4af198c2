"""The third part of `benchmarks.soak`: a source of many small videos with ten labels each.

`scan`, `scan --check`, `check` and the stage `takes` run as commands of their own in a project that
has this source; time and peak memory are those of the process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from benchmarks.workers import Table, row
from pjepa.tools.params import Params
from pjepa.tools.presets import params_text

ROOT = Path(__file__).resolve().parents[1]
LABELS, SECONDS, FPS, SIDE = 10, 5, 4, 32
COMMANDS = {
    "scan": ["-m", "pjepa", "data", "scan"],
    "scan --check": ["-m", "pjepa", "data", "scan", "--check"],
    "check": ["-m", "pjepa", "data", "check"],
    "takes": ["-m", "stages.takes"],
}


def write_source(folder: Path, count: int) -> None:
    """A project whose source is `count` videos below mine/, a folder per hundred."""
    folder.mkdir()
    film = tiny_film(folder / "film.mp4")
    lines = ["video,start,end,label"]
    for number in range(count):
        name = f"{number // 100:04d}/{number:06d}.mp4"
        path = folder / "mine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(film)
        step = SECONDS / LABELS
        for k in range(LABELS):
            lines.append(f"{name},{k * step:.2f},{(k + 1) * step:.2f},step {(number + k) % 40}")
    (folder / "mine" / "labels.csv").write_text("\n".join(lines) + "\n")
    source = {"data": {"source": "folder", "folder": {"path": "mine"}}}
    (folder / "params.yaml").write_text(params_text(Params.model_validate(source)))


def tiny_film(path: Path) -> bytes:
    """A few frames of noise."""
    draw = np.random.default_rng(0)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=FPS)
        stream.width = stream.height = SIDE
        stream.pix_fmt = "yuv420p"
        for number in range(SECONDS * FPS):
            picture = draw.integers(0, 255, (SIDE, SIDE, 3), np.uint8)
            frame = av.VideoFrame.from_ndarray(picture, "rgb24")
            frame.pts, frame.time_base = number, Fraction(1, FPS)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path.read_bytes()


def measured(command: list[str], folder: Path) -> tuple[float, float]:
    """Seconds and peak MB of a command in that project."""
    places = {"PJEPA_DATA_ROOT": str(folder), "DVC_ROOT": str(folder), "PYTHONPATH": str(ROOT)}
    log = folder / "log.txt"
    begun = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, *command], cwd=folder, env={**os.environ, **places}, stdout=out,
            stderr=out,
        )  # fmt: skip
        peak = peak_memory(process)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}:\n{log.read_text()[-2000:]}")
    return time.monotonic() - begun, peak


def peak_memory(process: subprocess.Popen[bytes]) -> float:
    """MB at most until its end; `ru_maxrss` would count what started it too."""
    peak = 0.0
    while process.poll() is None:
        with suppress(OSError):  # it ended just now
            for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
                if line.startswith("VmHWM"):
                    peak = max(peak, int(line.split()[1]) / 1024)
        time.sleep(0.02)
    return peak


def measure_data(table: Table, count: int, folder: Path) -> None:
    """Every command on a tenth of the videos and on all of them."""
    few, many = folder / "few", folder / "many"
    write_source(few, count // 10)
    write_source(many, count)
    for name, command in COMMANDS.items():
        (less_s, less_mb), (seconds, peak) = measured(command, few), measured(command, many)
        case = f"{name}: {count} videos, {LABELS * count} labels"
        table.add(f"{case}, a tenth of them x 10 beside", row(seconds, 10 * less_s, "s"))
        table.add(f"{case}, peak memory, a tenth of them beside", row(peak, less_mb, "MB"))
