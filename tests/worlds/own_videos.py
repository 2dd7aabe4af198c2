"""Own videos as people have them: real files in folders, one CSV without a final newline."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np

COLOURS = {"cut": (220, 40, 40), "stir": (40, 220, 40), "wait": (40, 40, 220)}
PLANS = {  # video: what happens in its three parts of 2 s
    "a b.mp4": ("cut", "stir", "wait"),
    "deep/c.mp4": ("stir", "cut", "wait"),
    "d.mp4": ("cut", "wait", "stir"),
    "e.mkv": ("wait", "cut", "stir"),
}


def write_video(path: Path, plan: tuple[str, ...], part_s: float = 2.0, fps: int = 8) -> None:
    """A real video, 96 x 96, whose colour tells what happens."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(len(path.name))
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=fps)
        stream.width = stream.height = 96
        stream.pix_fmt = "yuv420p"
        for step in plan:
            for _ in range(round(part_s * fps)):
                picture = np.clip(rng.normal(COLOURS[step], 15, (96, 96, 3)), 0, 255)
                frame = av.VideoFrame.from_ndarray(picture.astype(np.uint8), format="rgb24")
                container.mux(stream.encode(frame))
        container.mux(stream.encode())


def write_own_videos(folder: Path) -> None:
    """Four videos, and labels.csv: names with and without suffix, seconds and clock times."""
    lines = ["video,start,end,label"]
    for name, plan in PLANS.items():
        write_video(folder / name, plan)
        video = name if "/" in name else name.split(".")[0]
        lines += [
            f"{video},{2 * k}, 0:0{2 * k + 2}.0,{step}" for k, step in enumerate(plan)
        ]  # fmt: skip
    (folder / "labels.csv").write_text("\n".join(lines))
