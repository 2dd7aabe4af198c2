"""The decoding thread hands over the frames that the file reader would choose."""

import time

import numpy as np
import pytest
import torch

from pjepa.errors import InputError
from pjepa.live.source import Grid, Source
from pjepa.video.reader import open_video
from pjepa.video.sampling import token_count
from tests.live.world import make_video


def as_tensor(frames):
    return torch.from_numpy(frames.copy()).permute(3, 0, 1, 2)


def frames_of(source):
    hops = list(source.hops())
    return hops, torch.cat([hop.video for hop in hops], 1).permute(1, 2, 3, 0).numpy()


@pytest.mark.parametrize(("fps", "seconds"), [(15, 3.0), (10, 2.3), (7, 1.1), (30, 0.5)])
@pytest.mark.parametrize("suffix", [".mp4", ".ts"])
def test_equal_to_the_file_reader(tmp_path, fps, seconds, suffix):
    path = make_video(tmp_path / f"x{suffix}", seconds, fps=fps)
    hops, found = frames_of(Source(str(path), Grid(4.0, 2, 4), as_tensor))
    with open_video(path, "pyav") as reader:
        count = token_count(reader.info.duration_s, 4.0)
        expected = reader.frames(np.arange(2 * count) / 8.0)
    np.testing.assert_array_equal(found, expected)
    assert [hop.start for hop in hops] == list(range(0, count, 4))


def test_a_file_goes_on_in_the_middle(tmp_path):
    path = make_video(tmp_path / "x.mp4", 4.0)
    _, whole = frames_of(Source(str(path), Grid(4.0, 2, 4), as_tensor))
    hops, rest = frames_of(Source(str(path), Grid(4.0, 2, 4), as_tensor, start=8))
    np.testing.assert_array_equal(rest, whole[16:])
    assert hops[0].start == 8


def test_a_file_waits_and_a_live_source_drops_and_counts(tmp_path):
    path = make_video(tmp_path / "x.mp4", 8.0)
    for live in (False, True):
        source = Source(str(path), Grid(4.0, 2, 1), as_tensor, live=live)
        starts = []
        for hop in source.hops():
            starts.append(hop.start)
            if len(starts) == 3:
                time.sleep(1.0)  # the reader is busy; decoding 8 s takes far less
        assert source.status == "ended"
        if live:
            assert source.dropped > 0
            assert starts != list(range(32))
            assert starts[-1] == 31  # the newest frames are the ones that stay
        else:
            assert (starts, source.dropped) == (list(range(32)), 0)
        assert source.frames + source.dropped == 64


def test_a_source_that_stalls_is_said(tmp_path):
    import os
    import threading

    path, fifo = make_video(tmp_path / "x.ts", 2.0, format="mpegts"), tmp_path / "pipe.ts"
    os.mkfifo(fifo)
    done = threading.Event()

    def write():
        with fifo.open("wb") as pipe:
            pipe.write(path.read_bytes())
            pipe.flush()
            done.wait(20)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    source = Source(str(fifo), Grid(4.0, 2, 1), as_tensor, live=True, stall_s=0.5)
    hops = list(source.hops())
    done.set()
    assert source.status == "stalled: no frame for 0.5 s"
    assert hops


def test_what_is_no_video_is_named(tmp_path):
    text = tmp_path / "x.mp4"
    text.write_text("no video at all")
    with pytest.raises(InputError, match=r"x\.mp4: no video that can be decoded"):
        Source(str(text), Grid(4.0, 2, 1), as_tensor)


def test_a_file_cut_off_gives_what_it_has_and_ends(tmp_path):
    path = make_video(tmp_path / "x.ts", 4.0, format="mpegts")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    source = Source(str(path), Grid(4.0, 2, 1), as_tensor)
    assert 2 <= len(list(source.hops())) < 16
    assert source.status.startswith(("ended", "failed"))
