"""Every tool reads a file the same way: the same frames, or a refusal by all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

from pjepa.core.section import ReaderName
from pjepa.core.tables import VideoRow
from pjepa.core.time import token_count
from pjepa.live.source import LiveSource, StepGrid
from pjepa.patches.backbone import backbone_facts
from pjepa.patches.config import PatchesConfig
from pjepa.patches.encode import Job, decoded_batches, open_take, patch_info
from pjepa.tools.check import damaged_videos
from pjepa.tools.cli import app
from pjepa.tools.look import Tile, draw_contact_sheet
from pjepa.ui.console import InputError
from tests.video.corpus import corpus, write_film
from tests.worlds.small_source import small_source

FILMS = {film.name: film for film in corpus()}
NAMES = ("mpeg4-packed.avi", "open.mp4", "edited.mp4", "uneven.mkv", "damaged.mp4", "twice.ts")
READERS: tuple[ReaderName, ...] = ("auto", "decord")


class Plain:
    """The part of a backbone that decoding needs: pictures as they are."""

    @staticmethod
    def prepared(frames: np.ndarray) -> Tensor:
        return torch.from_numpy(frames.copy()).permute(3, 0, 1, 2)


def written(name: str) -> Path:
    if name != "twice.ts":
        return write_film(FILMS[name], Path())
    path = Path(name)
    path.write_bytes(2 * write_film(FILMS["plain.ts"], Path()).read_bytes())
    return path


def by_patches(path: Path, config: PatchesConfig) -> np.ndarray:
    """Frames that `patches`, `extract` and `predict` encode, padding left out."""
    info = patch_info(config, backbone_facts(config))
    job = Job("take", path.name, path, 0.0, None, path)
    plain: Any = Plain()
    found = []
    for batch in decoded_batches(job, plain, config, info):
        for window, video in zip(batch.windows, batch.video, strict=True):
            found.append(video[:, : window.tokens * info.tubelet])
    return torch.cat(found, 1).permute(1, 2, 3, 0).numpy()


def by_stream(path: Path, config: PatchesConfig) -> np.ndarray:
    """Frames that `stream` encodes."""
    grid = StepGrid(config.tokens_fps, config.tubelet, 4)
    source = LiveSource(str(path), grid, Plain.prepared, video=open_take(path, config))
    found = [hop.video for hop in source.hops()]
    if source.status != "ended":
        raise InputError(source.status)
    return torch.cat(found, 1).permute(1, 2, 3, 0).numpy()


def by_reader(path: Path, config: PatchesConfig) -> np.ndarray:
    with open_take(path, config) as reader:
        steps = token_count(reader.info.duration_s, config.tokens_fps)
        return reader.frames(np.arange(steps * config.tubelet) / config.fps)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", NAMES)
def test_tools_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reader: ReaderName
) -> None:
    monkeypatch.chdir(tmp_path)
    config = PatchesConfig(
        backbone="vjepa2_1_vit_tiny", checkpoint="random", fps=25.0, frames_per_window=8, crop=32,
        window_scope="take", reader=reader,
    )  # fmt: skip
    path = written(name)
    row = VideoRow("take", name, 25.0, 1.0)
    tiles = [Tile(0.04 * number, "") for number in range(24, 48, 3)]
    levels = [finding.level for finding in damaged_videos(small_source(videos=[row]), config)]
    if name.startswith("damaged"):
        assert levels == ["error"]
        for read in (by_reader, by_patches, by_stream):
            with pytest.raises(InputError, match="frames cannot be decoded"):
                read(path, config)
        with pytest.raises(InputError, match="frames cannot be decoded"):
            draw_contact_sheet(row, tiles, Path("sheet.png"), config)
        return
    assert levels == (["warning"] if name == "twice.ts" else [])
    expected = by_reader(path, config)
    np.testing.assert_array_equal(by_patches(path, config), expected)
    np.testing.assert_array_equal(by_stream(path, config), expected)
    draw_contact_sheet(row, tiles[:2], Path("sheet.png"), config)


@pytest.mark.parametrize("command", ["extract", "predict", "stream", "data check", "data view"])
def test_every_command_that_reads_video_has_the_option(command: str) -> None:
    result = CliRunner().invoke(app, [*command.split(), "--help"], env={"COLUMNS": "200"})
    assert "--reader" in result.output
