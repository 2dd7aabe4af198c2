from dataclasses import replace

import numpy as np
import pytest
import torch

from pjepa.core.runs import runs, token_offsets
from pjepa.nn.prefetch import Prefetch
from pjepa.pretrain.data import (
    TokenPacking,
    epoch_steps,
    forward_passes,
    pack,
    read_training_takes,
    take_share,
    token_statistics,
    view,
)
from pjepa.pretrain.exchange import Exchange
from pjepa.pretrain.feed import KeptTokens, PinnedTokens, SentTokens, feed
from pjepa.pretrain.setup import new_model
from pjepa.pretrain.team import Team
from pjepa.streams.provenance import StreamInfo
from pjepa.streams.stream import StreamReader, StreamWriter, Take
from pjepa.ui.console import InputError
from tests.storage.flip import flip


def with_values(config, **changes):
    return config.model_copy(update=changes)


def test_masks_do_not_depend_on_batches(takes, config):
    def masks(budget):
        found = {}
        wanted = with_values(config, batch_tokens=budget, seed=7, mask_ratio=0.6, epochs=6)
        for (batch,), _ in feed(takes, wanted, Team(), 5, 0):
            target = torch.isin(torch.arange(len(batch)), batch.mask.target)
            parts = torch.split(target, list(batch.layout.take_lengths))
            shown = torch.split(batch.features, list(batch.layout.take_lengths))
            keys = [tuple(x.flatten().tolist()) for x in shown]
            found.update(zip(keys, parts, strict=True))
        return found

    one, many = masks(1), masks(10_000)
    assert len(one) == len(takes)
    assert one.keys() == many.keys()
    assert all(torch.equal(one[key], many[key]) for key in one)


def test_passes_keep_to_their_budget_and_lose_nothing(takes, config):
    views = [view(take, 0, config) for take in takes]
    for changes in ({"batch_tokens": 70}, {"batch_takes": 2, "batch_tokens": 10_000}):
        passes = forward_passes(views, with_values(config, **changes))
        assert [v for part in passes for v in part] == views
        limit = changes.get("batch_takes", 99)
        assert all(len(p) <= limit for p in passes)
        budget = changes["batch_tokens"]
        assert all(sum(map(len, p)) <= budget or len(p) == 1 for p in passes)


def test_tokens_are_the_same_wherever_they_wait(takes, config):
    here, d_in = torch.device("cpu"), takes[0].features.shape[1]
    stored = [replace(take, features=take.features.astype(np.float16)) for take in takes]
    ways = KeptTokens(here, stored), PinnedTokens(here, stored), SentTokens(here, torch.float16)
    exchange = Exchange(stored, 0.5, 0, True) if config.exchange else None
    for changes in ({}, {"max_run": 3}, {"max_segments": 2}, {"max_run": 2, "crop_tokens": 7}):
        views = [view(take, 1, with_values(config, **changes), exchange) for take in stored[::-1]]
        for part in (views, views[:1], []):
            expected = TokenPacking().packed(part, d_in)
            assert expected.dtype == torch.float32
            assert all(same_bits(way.packed(part, d_in), expected) for way in ways)


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)


def test_a_step_accumulates_passes(takes, config):
    config = with_values(config, batch_takes=1, accumulate=4)
    steps = epoch_steps(takes, 0, config)
    assert [len(step) for step in steps] == [4, 2]
    fed = feed(takes, with_values(config, epochs=2), Team(), 0, 1)  # one step is done
    assert [(len(batches), last) for batches, last in fed] == [(2, True), (4, False), (2, True)]


def test_takes_that_show_a_token_each_cannot_be_trained_on(takes, config):
    with pytest.raises(InputError, match="no take shows two tokens"):
        epoch_steps(takes, 0, with_values(config, max_run=1, max_segments=1))


def test_windows_show_whole_segments_from_zero(takes, config):
    config = with_values(config, max_segments=2)
    seen = set()
    for epoch in range(30):
        shown = view(takes[0], epoch, config)
        (piece,) = shown.pieces
        assert shown.segment[0] == 0
        assert len(np.unique(shown.segment)) == 2
        assert np.array_equal(shown.offset, token_offsets(shown.segment))
        assert np.array_equal(piece.features(), takes[0].features[piece.start : piece.stop])
        seen.add(piece.start)
    assert len(seen) == len(np.unique(takes[0].segment)) - 1


def test_runs_are_cut_and_crops_keep_their_offsets(takes, config):
    cut = view(takes[0], 0, with_values(config, max_run=3))
    _, lengths = runs(cut.segment)
    assert lengths.max() == 3
    assert len(lengths) == len(np.unique(takes[0].segment))
    crop = view(takes[0], 0, with_values(config, crop_tokens=5))
    (piece,) = crop.pieces
    assert len(piece) == 5
    expected = token_offsets(takes[0].segment)[piece.start : piece.stop]
    assert np.array_equal(crop.offset, expected)


def test_the_same_epoch_shows_the_same_window(takes, config):
    config = with_values(config, crop_tokens=6)
    (one,), (again,) = view(takes[1], 4, config).pieces, view(takes[1], 4, config).pieces
    assert (one.start, one.stop) == (again.start, again.stop)


def test_nothing_to_pack_is_an_empty_batch(config):
    batch = pack([], 0, config, 8)
    assert batch.features.shape == (0, 8)
    assert len(batch.mask.target) == len(batch.mask.context) == 0


def test_statistics_and_style_share(takes):
    stacked = np.concatenate([t.features.astype(np.float64) for t in takes])
    mean, std = token_statistics(takes)
    np.testing.assert_allclose(mean, stacked.mean(axis=0))
    np.testing.assert_allclose(std, stacked.std(axis=0))
    assert take_share(takes) > 0.5


@pytest.fixture
def stream(tmp_path):
    rng = np.random.default_rng(0)
    with StreamWriter(tmp_path / "s.parquet", StreamInfo(source="x", fps=4, width=4)) as writer:
        for number, count in enumerate((9, 1, 5)):
            segment = np.zeros(count, np.int32)
            features = rng.normal(size=(count, 4))
            times = np.arange(count) / 4
            writer.write(Take(f"t{number}", features, times, segment, token_offsets(segment)))
    return StreamReader(tmp_path / "s.parquet")


def test_fixed_segments_of_training_end_where_time_stamps_jump(takes, config, tmp_path):
    path = tmp_path / "cut.parquet"
    info = StreamInfo(source="x", fps=4, width=8, cuts={"take-0": (1.7,)})
    with StreamWriter(path, info, "float32") as writer:
        for take in takes:
            times, place = np.arange(len(take.features)) / 4, token_offsets(take.segment)
            writer.write(Take(take.take_id, take.features, times, take.segment, place))
    read = read_training_takes(StreamReader(path), {"take-0", "take-1"}, tmp_path / "copy.arrow")
    student = new_model(config.model_copy(update={"segments": "fixed", "block": 5}), read).student
    first, second = (student.segments(t.features, None, "", t.recording) for t in read)
    assert first[:13].tolist() == [0] * 5 + [1] * 2 + [2] * 5 + [3]  # token 7 is at 1.75 s
    assert second[:13].tolist() == [0] * 5 + [1] * 5 + [2] * 3


def test_the_copy_is_the_stream_and_short_takes_are_counted(stream, tmp_path, capsys):
    takes = read_training_takes(stream, {"t0", "t1", "t2"}, tmp_path / "copy.arrow")
    assert [(t.number, t.take_id) for t in takes] == [(0, "t0"), (2, "t2")]
    for take in takes:
        assert take.features.dtype == np.float16
        assert np.array_equal(take.features, stream.read(take.take_id).features)
    assert "1 takes of fewer than 2 tokens" in capsys.readouterr().err


def test_a_damaged_copy_is_put_aside_and_made_again(stream, tmp_path, capsys):
    path = tmp_path / "copy.arrow"
    (before, _) = read_training_takes(stream, {"t0", "t2"}, path)
    expected = before.features.copy()
    flip(path, 400)
    capsys.readouterr()
    (again, _) = read_training_takes(stream, {"t0", "t2"}, path)
    np.testing.assert_array_equal(again.features, expected)
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "damaged" in line]
    assert said.startswith(f"{path}: is damaged, it is not what was copied")
    assert path.with_name("copy.arrow.damaged").exists()


def test_an_empty_split_is_one_line(stream, tmp_path):
    with pytest.raises(InputError, match="no take to pretrain on"):
        read_training_takes(stream, set(), tmp_path / "copy.arrow")


def test_a_take_that_is_not_finite_is_named(stream, tmp_path, monkeypatch):
    whole = stream.read

    def poisoned(take_id):
        take = whole(take_id)
        return take.with_features(take.features * (np.inf if take_id == "t2" else 1))

    monkeypatch.setattr(stream, "read", poisoned)
    with pytest.raises(InputError, match="take t2 has features that are not finite"):
        read_training_takes(stream, {"t0", "t2"}, tmp_path / "copy.arrow")
    assert not list(tmp_path.glob("*.arrow"))


def test_prefetch_keeps_order_and_passes_errors_on():
    def items():
        yield from range(5)
        raise InputError("bad take")

    with Prefetch(items()) as ready:
        found = iter(ready)
        assert [next(found) for _ in range(5)] == [0, 1, 2, 3, 4]
        with pytest.raises(InputError, match="bad take"):
            next(found)


def test_prefetch_ends_when_left_early():
    with Prefetch(iter(range(1000))) as ready:
        for item in ready:
            if item == 3:
                break
    assert not ready.thread.is_alive()
