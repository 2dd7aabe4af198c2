"""The `demo` source: scripts, videos, tables, the truth behind them and the ceilings."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import cast

import av
import numpy as np
import pyarrow as pa
from av.video.stream import VideoStream

from pjepa.core.tables import Classes, VideoRow, write_table
from pjepa.storage.writing import atomic_file, write_json
from pjepa.takes.config import DataConfig
from pjepa.takes.demo.scene import Camera
from pjepa.takes.demo.world import (
    BACKGROUND,
    DEMO_CEILINGS,
    DEMO_TRUTH,
    DEMO_VIDEOS,
    NAMES,
    PRIMITIVES,
    PROCEDURES,
    SECONDS,
    Script,
    build_chain,
    ceilings,
    write_script,
)
from pjepa.takes.source import Annotation, Source, take_row
from pjepa.ui.console import track

# Filming a script: a real video file, the same bytes for the same seed.


def _codec() -> tuple[str, dict[str, str]]:
    """Return the codec and its options: H.264 if this PyAV can encode it, else MPEG-4."""
    if "libx264" in av.codecs_available:
        return "libx264", {"preset": "superfast", "crf": "25", "threads": "1"}
    return "mpeg4", {"qscale": "4", "threads": "1"}


def film(script: Script, path: Path, fps: int, size: int, rng: np.random.Generator) -> None:
    """Write the take's video to `path`."""
    camera = Camera(rng, size)
    name, options = _codec()
    ends = np.array([event.end_s for event in script.events])
    times = np.arange(round(script.duration_s * fps)) / fps
    with (
        atomic_file(path) as partial,
        av.open(str(partial), "w", format="mp4", options={"fflags": "+bitexact"}) as container,
    ):
        stream = cast(VideoStream, container.add_stream(name, rate=fps, options=options))
        stream.width = stream.height = size
        stream.pix_fmt = "yuv420p"
        stream.codec_context.gop_size = fps
        shown = np.searchsorted(ends, times + 1e-9, side="right")
        for index, place in enumerate(shown.tolist()):
            image = camera.frame(script.events[place].primitive, index / fps, index)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode(None))


TRUTH_FPS = 4  # the truth is constant over quarter seconds
TRUTH = pa.schema(
    [("take_id", pa.string()), ("time_s", pa.float64()), ("primitive", pa.int32()),
     ("state", pa.int32())]
)  # fmt: skip


def demo_scripts(config: DataConfig) -> list[Script]:
    """Return the script of every take, from the seed alone."""
    chain, demo = build_chain(), config.demo
    longest = max(high for _, high in SECONDS.values())  # the last step may run over
    latest = max(demo.min_s, demo.max_s - longest)
    spans = np.random.default_rng([config.seed, 0]).uniform(demo.min_s, latest, demo.takes)
    return [
        write_script(
            chain,
            f"take-{index:04d}",
            index % len(PROCEDURES),
            float(seconds),
            [config.seed, 1, index],
            config.order == "shuffled",
        )
        for index, seconds in enumerate(spans)
    ]


def demo_splits(config: DataConfig) -> list[str]:
    """Return the split of every take, each procedure spread over all of them."""
    demo = config.demo
    rng = np.random.default_rng([config.seed, 2])
    splits = np.empty(demo.takes, dtype=object)
    for number in range(len(PROCEDURES)):
        members = rng.permutation(np.arange(number, demo.takes, len(PROCEDURES)))
        test = max(1, round(demo.test * len(members))) if len(members) > 1 else 0
        val = round(demo.val * len(members))
        splits[members[:test]] = "test"
        splits[members[test : test + val]] = "val"
        splits[members[test + val :]] = "train"
    return [str(split) for split in splits]


def film_demo(config: DataConfig) -> None:
    """Film all takes, and write the truth behind them and the ceilings."""
    scripts = demo_scripts(config)
    _film_all(scripts, config)
    _write_truth(scripts)
    _write_ceilings(scripts, demo_splits(config), config)


def demo_source(config: DataConfig, root: Path) -> Source:
    """Return the demo's takes; `film_demo` makes their videos."""
    scripts, splits = demo_scripts(config), demo_splits(config)
    takes = [
        take_row(s.take_id, "demo", split, task=s.procedure, view="bench")
        for s, split in zip(scripts, splits, strict=True)
    ]
    videos = [
        VideoRow(s.take_id, _video(s).as_posix(), float(config.demo.video_fps), s.duration_s)
        for s in scripts
    ]
    segments = [
        Annotation(s.take_id, event.start_s, event.end_s, event.label)
        for s in scripts
        for event in s.events
    ]
    return Source(videos, takes, segments, Classes(NAMES, BACKGROUND))


def _video(script: Script) -> Path:
    return DEMO_VIDEOS / f"{script.take_id}.mp4"


def _film_all(scripts: list[Script], config: DataConfig) -> None:
    """Film every take from its own random stream, so the number of workers changes no byte."""
    demo = config.demo
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with ProcessPoolExecutor(config.workers, mp_context=get_context("spawn")) as pool:
        jobs = [
            pool.submit(_film_one, s, demo.video_fps, demo.video_size, [config.seed, 3, index])
            for index, s in enumerate(scripts)
        ]
        for job in track(as_completed(jobs), "takes: film", total=len(jobs), unit="take"):
            job.result()


def _film_one(script: Script, fps: int, size: int, seed: list[int]) -> None:
    film(script, _video(script), fps, size, np.random.default_rng(seed))


def _write_truth(scripts: list[Script]) -> None:
    rows = [
        {"take_id": script.take_id, "time_s": tick / TRUTH_FPS, "primitive": event.primitive,
         "state": event.state}
        for script in scripts
        for event in script.events
        for tick in range(round(event.start_s * TRUTH_FPS), round(event.end_s * TRUTH_FPS))
    ]  # fmt: skip
    write_table(DEMO_TRUTH, rows, TRUTH)


def _write_ceilings(scripts: list[Script], splits: list[str], config: DataConfig) -> None:
    """Write the ceilings on the reported split and the names needed to read the truth."""
    scored = [s for s, split in zip(scripts, splits, strict=True) if split == "test"]
    values = ceilings(scored, build_chain(), config.order)
    rounded = {name: {k: round(v, 4) for k, v in part.items()} for name, part in values.items()}
    about = {"split": "test", "order": config.order, "primitives": list(PRIMITIVES)}
    write_json(DEMO_CEILINGS, {**about, **rounded})
