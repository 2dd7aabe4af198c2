"""The decoding thread hands over the frames that the file reader would choose."""

import itertools
import os
import threading
import time

import av
import numpy as np
import pytest
import torch

from pjepa.core.time import token_count
from pjepa.live.source import CHUNK, PIPE, LiveSource, Pipe, StepGrid
from pjepa.video.reader import open_video
from tests.live.world import make_video, wait_for
from tests.video.corpus import Film, write_film


def as_tensor(frames):
    return torch.from_numpy(frames.copy()).permute(3, 0, 1, 2)


def frames_of(source):
    hops = list(source.hops())
    return hops, torch.cat([hop.video for hop in hops], 1).permute(1, 2, 3, 0).numpy()


def piped(path, **options):
    """A source that reads a file as a pipe, once all of it has come."""
    with path.open("rb") as file:
        pipe = Pipe(file.fileno())
        wait_for(lambda: pipe._ended)
    return LiveSource(PIPE, StepGrid(4.0, 2, 1), as_tensor, pipe=pipe, **options)


@pytest.mark.parametrize(("fps", "seconds"), [(15, 3.0), (10, 2.3), (7, 1.1), (30, 0.5)])
@pytest.mark.parametrize("suffix", [".mp4", ".ts"])
def test_equal_to_the_file_reader(tmp_path, fps, seconds, suffix):
    path = make_video(tmp_path / f"x{suffix}", seconds, fps=fps)
    hops, found = frames_of(LiveSource(str(path), StepGrid(4.0, 2, 4), as_tensor))
    with open_video(path, "pyav") as reader:
        count = token_count(reader.info.duration_s, 4.0)
        expected = reader.frames(np.arange(2 * count) / 8.0)
    np.testing.assert_array_equal(found, expected)
    assert [hop.start for hop in hops] == list(range(0, count, 4))


@pytest.mark.parametrize("live", [False, True])
def test_nothing_is_lost_of_a_file_or_of_what_came_while_models_were_loading(tmp_path, live):
    path = make_video(tmp_path / "x.ts", 8.0, format="mpegts")
    file = LiveSource(str(path), StepGrid(4.0, 2, 1), as_tensor)
    source, ready, starts = piped(path, live=True) if live else file, time.monotonic(), []
    for hop in source.hops():
        assert (hop.arrived < ready) == live  # its age counts from when the bytes came
        if not starts:
            wait_for(source._waiting.full)  # the reader is busy
        starts.append(hop.start)
    assert (starts, source.dropped, source.frames) == (list(range(32)), 0, 64)
    assert source.status == "ended"


def test_a_live_source_drops_and_counts(tmp_path):
    path = make_video(tmp_path / "x.mp4", 8.0)
    prepared, taken = itertools.count(), threading.Event()

    def prepare(frames):
        if next(prepared):  # the second hop waits until the reader has the first
            taken.wait()
        return as_tensor(frames)

    source, starts = LiveSource(str(path), StepGrid(4.0, 2, 1), prepare, live=True), []
    for hop in source.hops():
        if not starts:  # the reader is busy until all is decoded: two hops wait, 29 are lost
            taken.set()
            wait_for(lambda: source.dropped == 2 * 29)
        starts.append(hop.start)
    assert starts == [0, 30, 31]  # the newest frames are the ones that stay
    assert source.frames + source.dropped == 64
    assert source.status == "ended"


def test_a_pipe_keeps_order_and_a_bound():
    end, start = os.pipe()
    pipe, sent = Pipe(end, limit=100_000), bytes(range(256)) * 4000
    writer = threading.Thread(target=lambda: os.write(start, sent) and os.close(start))
    writer.start()
    wait_for(lambda: pipe._waiting > 100_000)
    assert pipe._waiting <= 100_000 + CHUNK
    content, arrivals = b"", [pipe.arrived]
    while chunk := pipe.read(30_000):
        content += chunk
        arrivals.append(pipe.arrived)
    writer.join()
    assert (content, arrivals) == (sent, sorted(arrivals))


def test_an_unexpected_error_ends_the_source_and_is_said(tmp_path):
    def broken(frames):
        raise ZeroDivisionError("by zero")

    source = LiveSource(
        str(make_video(tmp_path / "x.mp4", 1.0)), StepGrid(4.0, 2, 1), broken, stall_s=1e9
    )
    assert list(source.hops()) == []
    assert source.status == "failed: ZeroDivisionError: by zero"


def test_a_packet_that_cannot_be_decoded_does_not_end_a_pipe(tmp_path):
    path = make_video(tmp_path / "x.mkv", 8.0)
    with av.open(str(path)) as container:
        broken = [bytes(packet) for packet in container.demux(video=0) if packet.size][20]
    path.write_bytes(path.read_bytes().replace(broken[8:], bytes(len(broken) - 8)))
    source = piped(path)
    assert len(list(source.hops())) in (32, 33)  # the mean frame lasts a little longer without it
    assert (source.status, source.damaged) == ("ended", 1)


def test_a_frame_that_the_decoder_marks_as_damaged_is_left_out_and_counted(tmp_path):
    path = write_film(Film("x.mkv", "libx264"), tmp_path)
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 700] = bytes(b ^ 0xA5 for b in content[middle : middle + 700])
    path.write_bytes(content)
    source = piped(path)
    list(source.hops())
    assert source.damaged >= 1
