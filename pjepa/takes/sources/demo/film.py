"""Filming a script: a real video file, the same bytes for the same seed."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import av
import numpy as np
from av.video.stream import VideoStream

from pjepa.core.files import atomic_file
from pjepa.takes.sources.demo.scene import Camera
from pjepa.takes.sources.demo.script import Script


def _codec() -> tuple[str, dict[str, str]]:
    """Return the codec and its options: H.264 if this PyAV can encode it, else MPEG-4."""
    if "libx264" in av.codecs_available:
        return "libx264", {"preset": "superfast", "crf": "25", "threads": "1"}
    return "mpeg4", {"qscale": "4", "threads": "1"}


def film(script: Script, path: Path, fps: int, size: int, rng: np.random.Generator) -> None:
    """Write the take's video to `path`."""
    camera = Camera(rng, size)
    name, options = _codec()
    with (
        atomic_file(path) as partial,
        av.open(str(partial), "w", format="mp4", options={"fflags": "+bitexact"}) as container,
    ):
        stream = cast(VideoStream, container.add_stream(name, rate=fps, options=options))
        stream.width = stream.height = size
        stream.pix_fmt = "yuv420p"
        stream.codec_context.gop_size = fps
        for index, primitive in enumerate(_primitives(script, fps)):
            image = camera.frame(primitive, index / fps, index)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")))
        container.mux(stream.encode(None))


def _primitives(script: Script, fps: int) -> np.ndarray:
    """Return the primitive shown in every frame."""
    times = np.arange(round(script.duration_s * fps)) / fps
    ends = np.array([event.end_s for event in script.events])
    place = np.searchsorted(ends, times + 1e-9, side="right")
    return np.array([event.primitive for event in script.events])[place]
