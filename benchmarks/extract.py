"""Decoding, encoding and writing at once: `python -m benchmarks.extract [--json FILE]`.

One take, one core for decoding, the other cores for encoding, the same limits for every case:
decoding alone on one core (decord has a thread of its own besides ours), encoding alone on the
others (of windows decoded before), and both on all of them, as `pjepa extract` runs them.
References: the larger of the two alone, and one after the other. Wall time, measured alternately,
the fastest round of each: it means something on an idle machine only. CPU time of both against the
sum says whether overlapping costs work (threads that spin while they wait). The last rows compare
the readers: CPU time for the frames of a take, and memory after an hour of small video (`--hour`).

OpenMP threads wait passively, as in the workers: spinning ones would take the decoder's core.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch starts its threads

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import torch

from benchmarks.workers import Table, Worker, alternately, resident, row
from pjepa.core.section import ReaderName
from pjepa.nn.prefetch import Prefetch
from pjepa.patches.backbone import load_backbone
from pjepa.patches.config import PatchesConfig
from pjepa.patches.encode import Job, decoded_batches, encoded_job, patch_info, write_take
from pjepa.video.reader import open_video

RATE = 30


def write_film(path: Path, seconds: int, width: int, height: int) -> Path:
    """Return a real H.264 file of drifting noise."""
    rng = np.random.default_rng(0)
    shape = (height // 8, width // 8 + 64, 3)
    noise = np.kron(rng.integers(0, 256, shape, dtype=np.uint8), np.ones((8, 8, 1), np.uint8))
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=RATE)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.options = {"preset": "veryfast"}
        for number in range(seconds * RATE):
            left = 2 * number % 512
            picture = np.ascontiguousarray(noise[:, left : left + width])
            frame = av.VideoFrame.from_ndarray(picture, "rgb24")
            frame.pts, frame.time_base = number, Fraction(1, RATE)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def overlap_config(reader: ReaderName, crop: int) -> PatchesConfig:
    return PatchesConfig(
        backbone="vjepa2_1_vit_tiny", checkpoint="random", frames_per_window=16, crop=crop,
        window_scope="take", grid=1, batch_windows=1, reader=reader,
        threads=max(1, (os.cpu_count() or 2) - 1),
    )  # fmt: skip


@contextmanager
def on_cores(case: str) -> Iterator[None]:
    """Limit the block to the cores of its case, where the system lets us (Linux)."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = sorted(os.sched_getaffinity(0))
    given = {"decode": cores[:1], "encode": cores[1:] or cores}.get(case, cores)
    os.sched_setaffinity(0, given)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def overlap_seconds(film: Path, config: PatchesConfig, rounds: int) -> dict[str, float]:
    """Return fewest wall and CPU seconds of decoding, encoding, and both at once."""
    backbone = load_backbone(config)
    info = patch_info(config, backbone.facts)
    target = film.with_suffix(".safetensors")
    job = Job("take", film.name, film, 0.0, None, target)

    def decode() -> list[Any]:
        with Prefetch(decoded_batches(job, backbone, config, info), 10_000) as batches:
            return list(batches)

    torch.set_num_threads(config.threads)
    ready = decode()
    cases: dict[str, Callable[[], Any]] = {
        "decode": decode,
        "encode": lambda: write_take(target, iter(ready), backbone, config, info, lambda n: None),
        "both": lambda: encoded_job(job, config, backbone.facts, lambda n: None),
    }
    fastest = dict.fromkeys([*cases, *(f"{name} CPU" for name in cases)], float("inf"))
    for _ in range(rounds + 1):
        for name, work in cases.items():
            target.unlink(missing_ok=True)
            with on_cores(name):
                started, worked = time.monotonic(), time.process_time()
                work()
            for kind, spent in (
                (name, time.monotonic() - started),
                (f"{name} CPU", time.process_time() - worked),
            ):
                fastest[kind] = min(fastest[kind], spent)
    return fastest


def add_overlap(table: Table, film: Path, reader: ReaderName, crop: int, rounds: int) -> None:
    found = overlap_seconds(film, overlap_config(reader, crop), rounds)
    decode, encode, both = found["decode"], found["encode"], found["both"]
    case = f"{reader}, crop {crop}: decode {decode:.2f} s, encode {encode:.2f} s; both"
    table.add(f"{case} / larger", row(both, max(decode, encode), "s"))
    table.add(f"{case} / sum", row(both, decode + encode, "s"))
    alone = found["decode CPU"] + found["encode CPU"]
    table.add(f"{reader}, crop {crop}: CPU time of both / sum", row(found["both CPU"], alone, "s"))


def reading(film: str, reader: ReaderName, fps: float, seconds: int) -> Callable[[], float]:
    """Read the film at `fps`, window by window; return resident MB at the end."""

    def work() -> float:
        with open_video(Path(film), reader) as opened:
            for start in range(0, seconds, 8):
                opened.frames(start + np.arange(int(8 * fps)) / fps)
            return resident("VmRSS")

    return work


def add_readers(table: Table, film: Path, seconds: int, rounds: int) -> None:
    for fps in (8.0, float(RATE)):
        workers = {k: Worker(reading, str(film), k, fps, seconds) for k in ("pyav", "decord")}
        found = alternately(workers, rounds)
        case = f"pyav, {fps:g} of {RATE} frames/s, CPU (reference: decord)"
        table.add(case, row(found["pyav"]["s"], found["decord"]["s"], "s"))


def add_hour(table: Table, folder: Path) -> None:
    """Add the memory after an hour of small video against that after a minute."""
    film = write_film(folder / "hour.mp4", 3600, 160, 96)
    for name in ("decord", "pyav"):
        workers = {
            "hour": Worker(reading, str(film), name, 8.0, 3600),
            "minute": Worker(reading, str(film), name, 8.0, 60),
        }
        found = alternately(workers, 0)
        case = f"{name}: memory after an hour (reference: a minute)"
        table.add(case, row(found["hour"]["result"], found["minute"]["result"], "MB"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=120, help="length of the take")
    parser.add_argument("--hour", action="store_true", help="also an hour of video (minutes)")
    options = parser.parse_args()
    table = Table()
    with tempfile.TemporaryDirectory() as folder:
        film = write_film(Path(folder) / "film.mp4", options.seconds, 480, 272)
        for reader, crop in (("pyav", 96), ("pyav", 160), ("decord", 96), ("decord", 160)):
            add_overlap(table, film, reader, crop, options.rounds)  # type: ignore[arg-type]
        add_readers(table, film, options.seconds, options.rounds)
        if options.hour:
            add_hour(table, Path(folder))
    table.save(options.json)


if __name__ == "__main__":
    main()
