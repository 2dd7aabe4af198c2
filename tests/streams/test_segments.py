"""Segment coordinates, and the one entry that says which segments attention uses."""

import numpy as np
import pytest

from pjepa.core.runs import attention_segments
from pjepa.model.segments import FoundConfig, FoundParameters, SegmentRule, take_segments
from pjepa.ui.console import InputError

FOUND = FoundParameters(FoundConfig(8, 20), 1.5, np.ones(4))


def noise(count: int, width: int = 4, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)


def test_annotated_segments_are_the_streams_own_with_gaps_between() -> None:
    segment = np.array([-1, 0, 0, -1, -1, 2, 3])
    found = take_segments(noise(7), segment, SegmentRule())
    assert found.tolist() == [0, 1, 1, 2, 2, 3, 4]
    np.testing.assert_array_equal(found, attention_segments(segment))


@pytest.mark.parametrize("segment", [None, np.full(5, -1), np.zeros(0, np.int64)])
def test_a_take_without_annotations_is_named_not_made_bidirectional(
    segment: np.ndarray | None,
) -> None:
    with pytest.raises(InputError, match=r"take x: .*attention=block_causal pjepa.segments=fixed"):
        take_segments(noise(5), segment, SegmentRule("annotated"), "take x")
    with pytest.raises(InputError, match="need a threshold"):
        SegmentRule("found")


def test_other_kinds_need_no_annotation_and_ignore_one() -> None:
    features = noise(50)
    fixed = SegmentRule("fixed", block=20)
    assert np.bincount(take_segments(features, None, fixed)).tolist() == [20, 20, 10]
    rule = SegmentRule("found", found=FOUND)
    expected = take_segments(features, None, rule)
    assert 2 <= expected.max() < 7
    np.testing.assert_array_equal(take_segments(features, np.arange(50), rule), expected)


@pytest.mark.parametrize("kind", ["fixed", "found"])
def test_no_segment_reaches_into_the_next_recording(kind: str) -> None:
    rule, features = SegmentRule(kind, 8, FOUND), noise(50)  # type: ignore[arg-type]
    recording = np.repeat([0, 1, 2], [13, 20, 17])
    found = take_segments(features, None, rule, recording=recording)
    parts = [take_segments(part, None, rule) for part in np.split(features, [13, 33])]
    firsts = np.cumsum([0, *(part.max() + 1 for part in parts)])
    np.testing.assert_array_equal(
        found, np.concatenate([a + b for a, b in zip(parts, firsts, strict=False)])
    )
