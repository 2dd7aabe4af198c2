"""Gaps, overlaps and order of annotations: which tokens there are and which segment holds each."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjepa.core.tables import VideoRow
from pjepa.core.time import Sampling, token_times
from pjepa.patches.store import PatchInfo, patch_writer, take_file_name
from pjepa.pooler.stored import MeanPooler, PoolerFacts
from pjepa.tokens.config import TokensConfig
from pjepa.tokens.materialise import materialised_takes, segment_labels, stream_info, token_labels
from pjepa.tokens.placement import Placement, grid_times, in_time_order, place, placed_takes
from pjepa.ui.console import InputError
from tests.patches.patch_infos import patch_info

QUARTERS = st.integers(0, 60).map(lambda k: k / 8)
SEGMENTS = st.lists(st.tuples(QUARTERS, QUARTERS).map(sorted), max_size=10).map(
    lambda pairs: np.array(pairs, np.float64).reshape(-1, 2)
)
ROW = VideoRow("x", "x.mp4", 30.0, 8.0)  # 32 tokens at 4 per second
TIMES = token_times(32, 4.0)
INFO = patch_info()


def facts(patches: PatchInfo = INFO, **changes: object) -> PoolerFacts:
    """What is known of mean pooling, or of another pooler."""
    known = {
        "kind": "mean", "width": 2, "window": 1, "per_step": 1, "scope": "take",
        "train_labels": False, "selection_labels": "none", "folds": 0, "sha256": "0",
    }  # fmt: skip
    return PoolerFacts(**known | {"patches": patches} | changes)  # type: ignore[arg-type]


MEAN = MeanPooler(facts(), "average")


def config(gaps: str = "keep", overlap: str = "clip") -> TokensConfig:
    return TokensConfig(gaps=gaps, overlap=overlap)  # type: ignore[arg-type]


def labelled(limits: np.ndarray, labels: list[int]) -> pd.DataFrame:
    """The table of the segments of take x."""
    start_s, end_s = limits.T
    columns = {"take_id": "x", "segment": range(len(limits)), "start_s": start_s, "end_s": end_s}
    return pd.DataFrame(columns | {"label": np.array(labels, np.int32)})


def held(limits: np.ndarray) -> list[list[int]]:
    """The steps in each segment, by definition."""
    return [[k for k, t in enumerate(TIMES) if start <= t < end] for start, end in limits]


def pairs(found: Placement) -> list[tuple[int, int]]:
    return list(zip(found.step.tolist(), found.segment.tolist(), strict=True))


@given(SEGMENTS)
def test_clip_keeps_every_step_once_and_ends_segments_where_the_next_begins(
    limits: np.ndarray,
) -> None:
    found = place("x", TIMES, limits, config())
    assert found.step.tolist() == list(range(32))
    steps = held(in_time_order(limits))
    expected, begun = [-1] * 32, [(part[0], k) for k, part in enumerate(steps) if part]
    for place_, (first, number) in enumerate(begun):
        stop = begun[place_ + 1][0] if place_ + 1 < len(begun) else 32
        for step in range(first, min(stop, steps[number][-1] + 1)):
            expected[step] = number
    assert found.segment.tolist() == expected
    assert found.without_token == sum(not part for part in steps)
    assert len(found.swallowed) == len(begun) - len(set(expected) - {-1})
    covered = {step for part in steps for step in part}
    assert found.uncovered == len(covered) - sum(number >= 0 for number in expected)


@given(SEGMENTS, st.sampled_from(["keep", "drop"]))
def test_duplicate_gives_every_segment_its_own_tokens(limits: np.ndarray, gaps: str) -> None:
    if gaps == "drop" and not len(limits):
        return
    found = place("x", TIMES, limits, config(gaps, "duplicate"))
    ordered = in_time_order(limits)
    for number, part in enumerate(held(ordered)):
        mine = found.step[found.segment == number].tolist()
        centre = ordered[number].mean()
        assert mine == part or (not part and mine == [int(np.abs(TIMES - centre).argmin())])
    numbers = found.segment[found.segment >= 0]
    assert (np.diff(numbers) >= 0).all()  # segments in order, each in one piece
    outside = set(range(32)) - set(found.step[found.segment >= 0].tolist())
    assert set(found.step[found.segment < 0].tolist()) == (outside if gaps == "keep" else set())


@given(SEGMENTS)
def test_drop_is_keep_without_its_gaps(limits: np.ndarray) -> None:
    kept = [pair for pair in pairs(place("x", TIMES, limits, config())) if pair[1] >= 0]
    if kept:
        assert pairs(place("x", TIMES, limits, config("drop"))) == kept
    else:
        with pytest.raises(InputError, match=r"take x: .*use tokens.gaps=keep"):
            place("x", TIMES, limits, config("drop"))


@given(SEGMENTS, st.randoms(), st.sampled_from(["clip", "duplicate"]))
def test_the_order_of_the_file_does_not_matter(
    limits: np.ndarray, random: object, overlap: str
) -> None:
    order = list(range(len(limits)))
    random.shuffle(order)  # type: ignore[attr-defined]
    first, second = (place("x", TIMES, x, config(overlap=overlap)) for x in (limits, limits[order]))
    assert (pairs(first), first.swallowed) == (pairs(second), second.swallowed)


@given(SEGMENTS, st.sampled_from([4, 16]))
def test_windows_inside_segments_agree_with_the_tokens_segments(
    limits: np.ndarray, frames: int
) -> None:
    segment = place("x", TIMES, limits, config()).segment
    for window in Sampling(4.0, 2, frames // 2).windows(32, limits):
        assert len(set(segment[window.start : window.stop].tolist())) == 1


def test_fail_names_the_two_segments() -> None:
    limits = np.array([[6.0, 7.0], [0.0, 5.0], [1.0, 2.0], [4.5, 6.0]])
    message = r"take x: segment 0 \(0.00 to 5.00 s\) and segment 1 \(1.00 to 2.00 s\) overlap"
    with pytest.raises(InputError, match=message):
        place("x", TIMES, limits, config(overlap="fail"))
    touching = np.array([[0.0, 1.1 + 2.2], [3.3, 5.0]])  # 3.3000000000000003
    assert len(place("x", TIMES, touching, config(overlap="fail")).step) == 32


@pytest.mark.parametrize("bad", [(3.0, 2.0), (np.nan, 2.0), (1.0, np.inf)])
def test_impossible_segments_are_named(bad: tuple[float, float]) -> None:
    with pytest.raises(InputError, match=r"take x: a segment from .*correct the annotation"):
        place("x", TIMES, np.array([[0.0, 1.0], bad]), config())


def test_what_annotations_lose_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    limits = np.array([[0.0, 4.0], [1.0, 2.0], [1.0, 3.0], [5.05, 5.1], [6.0, 6.0], [90, 91]])
    placed_takes(grid_times([ROW], 4.0), {"x": limits}, config())
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "tokens: take x: segment 1 (1.00 to 2.00 s) covered by the next segment; "
        "tokens.overlap=duplicate keeps them",
        "tokens: 3 segments hold no token: they are shorter than 1/4 s or past the end",
        "tokens: 4 tokens lost their segment, which ends where the next begins",
    ]
    placed_takes(grid_times([ROW], 4.0), {"x": limits}, config(overlap="duplicate"))
    said = capsys.readouterr().err.splitlines()
    assert said == ["tokens: 3 segments hold no token and were given the nearest one"]
    placed_takes(grid_times([ROW], 4.0), {}, config())
    assert capsys.readouterr().err == ""


def test_tokens_carry_the_feature_time_and_label_of_their_step(tmp_path: Path) -> None:
    values = np.arange(32, dtype=np.float16)[:, None, None] * np.ones(2, np.float16)
    with patch_writer(tmp_path / take_file_name("x"), INFO, 32) as writer:
        writer.append(values)
    limits = np.array([[5.0, 6.0], [1.0, 2.0], [1.5, 2.5]])
    known = segment_labels(labelled(limits, [7, 8, 9]), {"x": limits})["x"]
    for gaps, overlap in (("keep", "clip"), ("drop", "clip"), ("drop", "duplicate")):
        placed = placed_takes(grid_times([ROW], 4.0), {"x": limits}, config(gaps, overlap))
        (take,) = materialised_takes([ROW], placed, {}, tmp_path, 4.0, MEAN, {})
        np.testing.assert_array_equal(take.features[:, 0], 4 * take.times)
        labels = token_labels(take.segment, known)
        assert len(labels) == len(take.times) == len(take.offset)
        for time, number, label in zip(take.times, take.segment, labels, strict=True):
            if number < 0:
                assert label == -1
                continue
            start, end = in_time_order(limits)[number]
            assert start <= time < end
            assert label == {5.0: 7, 1.0: 8, 1.5: 9}[start]
    assert take.times.tolist() == [1, 1.25, 1.5, 1.75, 1.5, 1.75, 2, 2.25, 5, 5.25, 5.5, 5.75]
    assert take.offset.tolist() == [0, 1, 2, 3] * 3


def test_tables_that_disagree_are_named() -> None:
    limits = np.array([[0.0, 1.0], [1.0, 2.0]])
    table = labelled(np.array([[0.0, 1.0], [1.0, 2.5]]), [0, 1])
    for boundaries in ({"x": limits}, {}, {"x": limits, "y": limits}):
        with pytest.raises(InputError, match=r"take [xy]: .*hold different segments"):
            segment_labels(table, boundaries)


@pytest.mark.parametrize(
    ("gaps", "overlap", "scope", "expected"),
    [
        ("keep", "clip", "take", "none"),
        ("keep", "fail", "take", "none"),
        ("drop", "clip", "take", "annotated"),
        ("keep", "duplicate", "take", "annotated"),
        ("keep", "clip", "segment", "annotated"),
    ],
)
def test_provenance_says_whose_boundaries_chose_the_tokens(
    gaps: str, overlap: str, scope: str, expected: str
) -> None:
    patches = replace(INFO, window_scope=scope)  # type: ignore[arg-type]
    found = stream_info(facts(patches), config(gaps, overlap)).provenance
    assert (found.boundaries_train, found.boundaries_test) == (expected, expected)
    assert found.lookahead_s == 2.0


@pytest.mark.parametrize(
    ("window", "scope", "encoded", "ahead"),
    [
        (8, "take", "take", 8),  # cut together: the pooler adds nothing
        (4, "take", "take", 8),
        (32, "take", "take", 32),
        (12, "take", "take", 16),  # not always cut together: the last patches see on
        (8, "segment", "take", 15),
        (8, "segment", "segment", 8),
        (1, "take", "segment", 8),
    ],
)
def test_lookahead_is_what_a_token_can_see_at_most(
    window: int, scope: str, encoded: str, ahead: int
) -> None:
    patches = replace(INFO, window_scope=encoded)
    found = facts(patches, window=window, scope=scope)
    assert found.lookahead_steps == ahead
    limits = np.array([[0.0, 2.75], [2.75, 30.0]])
    inner, outer = (
        np.concatenate([[w.stop] * w.tokens for w in cut.windows(120, limits)])
        for cut in (Sampling(4.0, 2, window, scope), Sampling(4.0, 2, 8, encoded))  # type: ignore[arg-type]
    )
    seen = outer[inner - 1] - np.arange(120)
    assert seen.max() <= ahead
    if scope == encoded or window == 1:
        assert seen.max() == ahead
