"""Small pictures of a take's video for the page: one sheet per take, made once.

Sheets are kept outside the out, keyed by the video file and the times asked for: the next report
decodes only what is new.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from pjepa.core.tables import VideoRow
from pjepa.report.results import TakePrediction
from pjepa.storage.reading import fingerprint
from pjepa.storage.work import work_root
from pjepa.storage.writing import atomic_file
from pjepa.ui.console import InputError, Meter, say
from pjepa.video.reader import open_video

HEIGHT, WIDEST = 72, 160  # pixels of one picture
COLUMNS = 8
QUALITY = 60
VERSION = 1  # raise it when a change of code changes sheets


@dataclass(frozen=True)
class Sheet:
    """The pictures of one take in reading order, `COLUMNS` to a row, as one JPEG."""

    times: Sequence[float]
    width: int  # of one picture
    jpeg: bytes


def pictures_store() -> Path:
    """Return where sheets are kept between reports."""
    return work_root() / "pictures"


def picture_times(take: TakePrediction, count: int) -> list[float]:
    """Return up to `count` times: the middle of each true segment, then halves of wide gaps.

    With more segments than pictures, segments are taken evenly along the take.
    """
    spans = take.spans(take.labels)
    middles = ((spans.begin_s + spans.until_s) / 2).tolist()
    if len(middles) > count:
        chosen = np.linspace(0, len(middles) - 1, count).round().astype(int)
        return [round(middles[index], 2) for index in chosen.tolist()]
    times = sorted(middles)
    while times and len(times) < count:
        edges = [float(take.times[0]), *times, take.end_s]
        gaps = np.diff(edges)
        widest = int(gaps.argmax())
        if gaps[widest] < 2 * take.step_s:
            break
        times = sorted([*times, edges[widest] + float(gaps[widest]) / 2])
    return [round(time, 2) for time in times]


def take_sheets(
    videos: Mapping[str, VideoRow], takes: Mapping[str, TakePrediction], count: int, store: Path
) -> dict[str, Sheet]:
    """Return the sheets of those takes whose videos are on this machine."""
    present = [t for t in takes if t in videos and videos[t].video and videos[t].path.is_file()]
    if not count or not present:
        return {}
    sheets = {}
    with Meter("pictures", len(present), "take") as meter:
        for take_id in present:
            try:
                times = picture_times(takes[take_id], count)
                sheets[take_id] = take_sheet(videos[take_id].path, times, store)
            except InputError as error:
                say(f"warning: no pictures: {error}")
            meter.advance()
    return sheets


def take_sheet(video: Path, times: Sequence[float], store: Path) -> Sheet:
    """Return one take's sheet, from the store if it was made before."""
    state = video.stat()
    settings = [VERSION, HEIGHT, WIDEST, COLUMNS, QUALITY]
    key = fingerprint(str(video), state.st_size, state.st_mtime_ns, list(times), settings)
    stored = store / f"{key}.jpg"
    if not stored.exists():
        with open_video(video) as reader:
            pictures = [small(frame) for frame in reader.frames(np.array(times))]
        with atomic_file(stored) as partial:
            partial.write_bytes(contact_sheet(pictures))
    jpeg = stored.read_bytes()
    with Image.open(io.BytesIO(jpeg)) as image:
        width = image.width // min(COLUMNS, len(times))
    return Sheet(list(times), width, jpeg)


def small(frame: np.ndarray) -> Image.Image:
    """Return a frame [H, W, 3] at the height of the sheet; panoramas are squeezed to `WIDEST`."""
    width = min(max(round(frame.shape[1] * HEIGHT / frame.shape[0]), 1), WIDEST)
    return Image.fromarray(frame).resize((width, HEIGHT), Image.Resampling.BOX)


def contact_sheet(pictures: Sequence[Image.Image]) -> bytes:
    """Return equal pictures side by side as one JPEG."""
    width, columns = pictures[0].width, min(COLUMNS, len(pictures))
    rows = -(-len(pictures) // columns)
    sheet = Image.new("RGB", (columns * width, rows * HEIGHT))
    for number, picture in enumerate(pictures):
        row, column = divmod(number, columns)
        sheet.paste(picture, (column * width, row * HEIGHT))
    buffer = io.BytesIO()
    sheet.save(buffer, "JPEG", quality=QUALITY, optimize=True)
    return buffer.getvalue()
