from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pjepa.core.runs import runs, token_offsets
from pjepa.model.masking import random_targets
from pjepa.nn.prefetch import Prefetch
from pjepa.pretrain.data import epoch_steps, forward_passes, pack, read_training_takes, view
from pjepa.pretrain.feed import feed
from pjepa.pretrain.setup import measure, new_model
from pjepa.streams.provenance import StreamInfo
from pjepa.streams.stream import StreamReader, StreamWriter, Take
from pjepa.ui.console import InputError
from tests.pretrain.conftest import changed, tokens_of
from tests.storage.flip import flip


@given(st.integers(2, 500), st.floats(0.01, 0.99), st.integers(0, 10))
def test_targets_and_context_partition_the_take(tokens, ratio, seed):
    target = random_targets(tokens, ratio, np.random.default_rng(seed))
    assert len(target) == tokens
    assert 1 <= target.sum() <= tokens - 1
    assert target.sum() == np.clip(round(ratio * tokens), 1, tokens - 1)


def test_every_token_is_hidden_equally_often():
    rng = np.random.default_rng(0)
    share = np.mean([random_targets(20, 0.8, rng) for _ in range(4000)], axis=0)
    np.testing.assert_allclose(share, 0.8, atol=0.03)


def test_masks_do_not_depend_on_batches(takes, config):
    def masks(budget):
        found = {}
        wanted = changed(config, batch_tokens=budget, seed=7, mask_ratio=0.6, exchange=0.0)
        for (batch,), _ in feed(takes, wanted, None, 5, 0):
            lengths = list(batch.layout.take_lengths)
            target = torch.isin(torch.arange(len(batch)), batch.mask.target).split(lengths)
            keys = [tuple(x.flatten().tolist()) for x in batch.features.split(lengths)]
            found.update(zip(keys, target, strict=True))
        return found

    one, many = masks(1), masks(10_000)
    assert len(one) == len(takes)
    assert one.keys() == many.keys()
    assert all(torch.equal(one[key], many[key]) for key in one)


@pytest.mark.parametrize("changes", [{"batch_tokens": 70}, {"batch_takes": 2}])
def test_passes_keep_to_their_budget_and_lose_nothing(takes, config, changes):
    config = changed(config, **{"batch_tokens": 10_000, **changes})
    views = [view(take, 0, config) for take in takes]
    passes = forward_passes(views, config)
    assert [v for each in passes for v in each] == views
    assert all(len(each) <= (config.batch_takes or 99) for each in passes)
    assert all(sum(map(len, each)) <= config.batch_tokens or len(each) == 1 for each in passes)


def test_a_step_accumulates_passes(takes, config):
    config = changed(config, batch_takes=1, accumulate=4, epochs=2)
    assert [len(step) for step in epoch_steps(takes, 0, config)] == [4, 2]
    fed = feed(takes, config, None, 0, 1)  # one step is done
    assert [(len(batches), last) for batches, last in fed] == [(2, True), (4, False), (2, True)]


def test_takes_that_show_a_token_each_cannot_be_trained_on(takes, config):
    with pytest.raises(InputError, match="fewer than two tokens after cropping: nothing to mask"):
        epoch_steps(takes, 0, changed(config, max_run=1, max_segments=1))


@pytest.mark.parametrize(
    "changes", [{"max_segments": 2}, {"max_run": 3}, {"crop_tokens": 9}, {"max_run": 9}]
)
def test_an_epoch_shows_windows_of_a_take(takes, config, changes):
    take, starts = takes[0], set()
    offset, count = token_offsets(take.segment), len(np.unique(take.segment))
    for epoch in range(30):
        shown, again = (view(take, epoch, changed(config, **changes)) for _ in range(2))
        tokens, same = (
            np.concatenate([np.arange(p.start, p.stop) for p in v.pieces]) for v in (shown, again)
        )
        np.testing.assert_array_equal(tokens, same)
        layout = pack([shown], epoch, config, tokens_of(takes)).layout
        np.testing.assert_array_equal(
            layout.segment, take.segment[tokens] - take.segment[tokens[0]]
        )
        np.testing.assert_array_equal(layout.offset, offset[tokens])
        starts.add(tokens[0])
        lengths = runs(layout.segment.numpy())[1]
        assert len(lengths) == changes.get("max_segments", len(lengths))
        assert len(shown) == changes.get("crop_tokens", len(shown))
        assert max(lengths) <= changes.get("max_run", len(take.segment))
    expected = {"max_segments": count - 1, "crop_tokens": len(offset) - 8, "max_run": 1}
    assert len(starts) <= expected[next(iter(changes))]
    assert len(starts) > 1 or "max_run" in changes


def test_statistics_and_style_share(takes):
    """Features that never change have none."""
    stacked = np.concatenate([t.features.astype(np.float64) for t in takes])
    statistics = measure(takes)
    np.testing.assert_allclose(statistics.mean, stacked.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(statistics.std, stacked.std(axis=0), rtol=1e-6)
    within = sum(len(t.features) * t.features.astype(np.float64).var(axis=0) for t in takes).sum()
    total = len(stacked) * stacked.var(axis=0).sum()
    assert statistics.take_share == pytest.approx(1 - within / total)
    still = [replace(take, features=np.full_like(take.features, 0.1)) for take in takes]
    with pytest.raises(InputError, match="no feature changes"):
        measure(still)


def stream_of(takes, path, dtype, **info):
    info = StreamInfo(source="x", fps=4, width=takes[0].features.shape[1], **info)
    with StreamWriter(path, info, dtype) as writer:
        for take in takes:
            times, offset = np.arange(len(take.features)) / 4, token_offsets(take.segment)
            writer.write(Take(take.take_id, take.features, times, take.segment, offset))
    return StreamReader(path)


def test_fixed_segments_of_training_end_where_time_stamps_jump(takes, config, tmp_path):
    stream = stream_of(takes, tmp_path / "cut.parquet", "float32", cuts={"take-0": (1.7,)})
    read = read_training_takes(stream, {"take-0", "take-1"}, tmp_path / "copy")
    fixed = changed(config, segments="fixed", block=5)
    student = new_model(fixed, read, measure(read)).student
    first, second = (student.segments(t.features, None, "", t.recording) for t in read)
    assert first[:13].tolist() == [0] * 5 + [1] * 2 + [2] * 5 + [3]  # token 7 is at 1.75 s
    assert second[:13].tolist() == [0] * 5 + [1] * 5 + [2] * 3


@pytest.fixture
def stream(takes, tmp_path):
    """Three takes, the second of one token."""
    parts = [
        replace(take, take_id=f"t{n}", features=take.features[:count], segment=take.segment[:count])
        for n, (take, count) in enumerate(zip(takes, (9, 1, 5), strict=False))
    ]
    return stream_of(parts, tmp_path / "s.parquet", "float16")


def test_the_copy_is_the_stream_and_made_again_if_damaged(stream, tmp_path, capsys):
    path = tmp_path / "copy"
    for _ in range(2):
        takes = read_training_takes(stream, {"t0", "t1", "t2"}, path)
        assert [(t.number, t.take_id) for t in takes] == [(0, "t0"), (2, "t2")]
        for take in takes:
            assert take.features.dtype == np.float16
            np.testing.assert_array_equal(take.features, stream.read(take.take_id).features)
        flip(path, 30)
    said = capsys.readouterr().err
    assert "1 takes of fewer than 2 tokens" in said
    assert said.count(f"{path}: is damaged, it is not what was copied") == 1
    assert path.with_name("copy.damaged").exists()


def test_takes_that_cannot_be_trained_on_are_named(stream, tmp_path):
    class Poisoned(StreamReader):
        def read(self, take_id):
            take = super().read(take_id)
            return take.with_features(take.features * (np.inf if take_id == "t2" else 1))

    with pytest.raises(InputError, match="no take to pretrain on"):
        read_training_takes(stream, set(), tmp_path / "copy")
    with pytest.raises(InputError, match="take t2 has features that are not finite"):
        read_training_takes(Poisoned(stream.path), {"t0", "t2"}, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_prefetch_keeps_order_passes_errors_on_and_ends_when_left_early():
    def items():
        yield from range(5)
        raise InputError("bad take")

    with Prefetch(items()) as ready:
        found = iter(ready)
        assert [next(found) for _ in range(5)] == [0, 1, 2, 3, 4]
        with pytest.raises(InputError, match="bad take"):
            next(found)
    with Prefetch(iter(range(1000))) as ready:
        next(iter(ready))
    assert not ready.thread.is_alive()
