"""Windows of patches: every step in exactly one, read as stored, alike with any readers."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjepa.pooler.config import PoolerConfig
from pjepa.pooler.stored import pooled_spans
from pjepa.pooler.takes import clip_batches, epoch_clips, fixed_clips
from pjepa.storage.writing import write_json
from tests.pooler.world import World

RUNS = st.lists(st.integers(1, 20), min_size=1, max_size=6)


@given(RUNS, st.integers(1, 9), st.one_of(st.none(), st.integers(0, 99)))
def test_windows_cover_every_step_once_and_stay_inside_runs(
    lengths: list[int], window: int, seed: int | None
) -> None:
    ids = np.repeat(np.arange(len(lengths)), lengths)
    rng = None if seed is None else np.random.default_rng(seed)
    spans = pooled_spans(ids, window, rng)
    assert [step for start, stop in spans for step in range(start, stop)] == list(range(len(ids)))
    for start, stop in spans:
        assert 0 < stop - start <= window
        assert len(set(ids[start:stop].tolist())) == 1
    whole = [(a, b) for a, b in spans if b - a == window]
    assert len(whole) >= sum(length // window - 1 for length in lengths)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, unknown=True)


@pytest.mark.parametrize("target", ["clip", "frame"])
@pytest.mark.parametrize("epoch", [0, 1])
def test_no_training_window_reaches_across_a_jump(world: World, target: str, epoch: int) -> None:
    write_json(world.folder / "cuts.json", {"t0": [1.6, 4.0], "t1": [0.3]})
    config = PoolerConfig(kind="action", window=6, target=target, scope="take")  # type: ignore[arg-type]
    takes = world.takes().fit
    clips = [*epoch_clips(takes, config, epoch), *fixed_clips(takes, config)]
    for take_id, cut in (("t0", 7), ("t0", 16), ("t1", 2)):
        mine = [clip for clip in clips if clip.take.take_id == take_id]
        assert mine
        assert not [clip for clip in mine if clip.start < cut < clip.stop]


@pytest.mark.parametrize("target", ["clip", "frame"])
def test_batches_hold_the_stored_patches_and_their_labels(world: World, target: str) -> None:
    config = PoolerConfig(kind="action", window=6, target=target, scope="take")  # type: ignore[arg-type]
    clips = epoch_clips(world.takes().fit, config, epoch=1)
    batches = list(clip_batches(clips, 4, workers=3))
    assert sum(len(batch.labels) for batch in batches) == len(clips)
    seen: dict[str, list[int]] = {}
    for number, clip in enumerate(clips):
        batch, place = batches[number // 4], number % 4
        steps = clip.stop - clip.start
        stored = world.patches[clip.take.take_id][clip.start : clip.stop]
        np.testing.assert_array_equal(batch.patches[place, :steps], stored)
        labels = batch.labels[place].tolist()
        truth = world.labels(clip.take.take_id)[clip.start : clip.stop].tolist()
        assert labels[:steps] == truth
        assert set(labels[steps:]) <= {-1}
        assert max(truth) >= 0
        assert target == "frame" or len(set(truth)) == 1
        seen.setdefault(clip.take.take_id, []).extend(range(clip.start, clip.stop))
    assert set(seen) == {take.take_id for take in world.takes().fit}
    assert all(len(steps) == len(set(steps)) for steps in seen.values())


def test_readers_change_nothing_and_epochs_differ(world: World) -> None:
    config = PoolerConfig(kind="action", window=6, target="frame", scope="take")
    clips = epoch_clips(world.takes().fit, config, epoch=0)
    one, many = (list(clip_batches(clips, 5, workers)) for workers in (1, 4))
    for a, b in zip(one, many, strict=True):
        assert a.patches.equal(b.patches)
        assert a.labels.equal(b.labels)
    other = epoch_clips(world.takes().fit, config, epoch=1)
    assert {(c.take.take_id, c.start) for c in clips} != {(c.take.take_id, c.start) for c in other}
