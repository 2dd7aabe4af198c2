"""The official numbers, the textbook loops, and what must hold where official code gives up."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.metrics import loop_scores
from pjepa.metrics.segmentation import (
    CONVENTIONS,
    METRICS,
    majority_vote,
    segmentation_scores,
    take_statistics,
)
from pjepa.ui.console import InputError

GOLDEN = Path(__file__).parents[1] / "golden"
TAS = json.loads((GOLDEN / "tas" / "metrics.json").read_text())
RELEASE = json.loads((GOLDEN / "pjepa" / "metrics.json").read_text())
OFFICIAL = {  # golden key: (convention, background counted, our name of their accuracy)
    "mstcn_bg_excluded": ("mstcn", False, {"Acc": "acc_bg"}),
    "mstcn_bg_included": ("mstcn", True, {"Acc": "acc_bg"}),
    "ltcontext_ignore_pad_only": ("ltcontext", True, {"MoF": "acc"}),
    "ltcontext_ignore_bg_and_pad": ("ltcontext", False, {"MoF": "acc"}),
    "fact_eval_bg_False": ("fact", False, {"Acc": "acc", "AccB": "acc_bg"}),
    "fact_eval_bg_True": ("fact", True, {"Acc": "acc", "AccB": "acc_bg"}),
}
NAMES = {"Edit": "edit", "F1@10": "f1_10", "F1@25": "f1_25", "F1@50": "f1_50"}
NAMES |= {"F1@0.10": "f1_10", "F1@0.25": "f1_25", "F1@0.50": "f1_50"}


@pytest.mark.parametrize("official", OFFICIAL)
@pytest.mark.parametrize("case", TAS)
def test_official_numbers(case: str, official: str) -> None:
    convention, counts_background, accuracy = OFFICIAL[official]
    golden, background = TAS[case], None if counts_background else 0
    ours = segmentation_scores(golden["gt"], golden["pred"], background, convention)
    assert all(0 <= value <= 100 for value in ours.values())
    if isinstance(golden[official], str):  # the official code raises
        return
    for name, value in golden[official].items():
        if name in ("tp", "fp", "fn") or value is None:
            continue
        assert ours[(NAMES | accuracy)[name]] == pytest.approx(value, abs=1e-9), name


@pytest.mark.parametrize("case", RELEASE, ids=lambda case: f"background {case['bg']}")
def test_release_numbers(case: dict) -> None:
    videos = sorted(case["ground_truth"])
    truths = [case["ground_truth"][video] for video in videos]
    predictions = [case["predictions"][video] for video in videos]
    background = None if case["bg"] < 0 else case["bg"]
    ours = segmentation_scores(truths, predictions, background, "release")
    golden = case["result"]
    assert ours["acc_bg"] == pytest.approx(100 * golden["frame_accuracy"])
    assert ours["acc"] == pytest.approx(100 * golden["frame_accuracy_excluding_idle"])
    assert ours["edit"] == pytest.approx(golden["edit_score"])
    for name, key in (("f1_10", "0.1"), ("f1_25", "0.25"), ("f1_50", "0.5")):
        assert ours[name] == pytest.approx(golden["f1_overlap"][key])


labels = st.integers(-1, 4)
runs = st.lists(st.tuples(labels, labels, st.integers(1, 6)), max_size=90)


def sequences(pairs: list[tuple[int, int, int]]) -> tuple[list[int], list[int]]:
    truth = [y for y, _, length in pairs for _ in range(length)]
    return truth, [p for _, p, length in pairs for _ in range(length)]


@settings(max_examples=300, deadline=None)
@given(runs, st.sampled_from([None, 0]))
def test_equals_textbook_loops(pairs: list[tuple[int, int, int]], background: int | None) -> None:
    truth, prediction = sequences(pairs)
    ours = segmentation_scores([truth], [prediction], background)
    for name, value in loop_scores(truth, prediction, background).items():
        assert ours[name] == pytest.approx(value, abs=1e-9), name


def test_unknown_frames_change_nothing_but_the_runs() -> None:
    truth = [1, 1, 1, -1, -1, 2, 2, 2]
    guesses = [[1, 1, 1, guess, guess, 2, 2, 1] for guess in (0, 1, 2, 7)]
    first, *others = (take_statistics(truth, guess) for guess in guesses)
    assert others == [first] * 3
    split = take_statistics([1, 1, -1, 1, 1], [1, 1, 1, 1, 1])
    assert (split.truth_segments, split.predicted_segments, split.frames) == (2, 2, 4)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_degenerate_sequences_have_defined_scores(convention: str) -> None:
    def score(truth: list[int], prediction: list[int]) -> dict[str, float]:
        return segmentation_scores([truth], [prediction], 0, convention)

    no_take = segmentation_scores([], [], 0, convention)
    assert no_take == pytest.approx(dict.fromkeys(METRICS, 100.0))
    for empty in ([], [0, 0, 0], [-1, -1]):
        assert score(empty, empty) == pytest.approx(dict.fromkeys(METRICS, 100.0))
    assert score([2], [2]) == pytest.approx(dict.fromkeys(METRICS, 100.0), abs=2e-3)
    assert score([2], [1])["f1_50"] == score([2], [1])["macro_f1"] == 0.0
    assert score([2], [0])["edit"] == 0.0
    if convention != "ltcontext":  # which deletes the frames before it looks
        wrong = score([0, 0, 0], [0, 1, 0])
        assert wrong["edit"] == wrong["f1_10"] == wrong["acc"] == 0.0
        assert wrong["acc_bg"] == pytest.approx(200 / 3)


def test_fact_skips_takes_without_segments_in_edit() -> None:
    truths, predictions = [[0, 0], [1, 2]], [[0, 0], [1, 1]]
    assert segmentation_scores(truths, predictions, 0, "fact")["edit"] == 50.0
    assert segmentation_scores(truths, predictions, 0, "release")["edit"] == 75.0


def test_majority_vote() -> None:
    voted = majority_vote([1, 1, 2, 2, 3, 4, 5], [0, 0, 0, 1, 1, -1, 7])
    assert voted.tolist() == [1, 1, 1, 2, 2, 4, 5]  # tie 2/3: the smaller label
    assert majority_vote([], []).tolist() == []
    ours = segmentation_scores([[0, 0, 0, 1, 1, 1]], [[0, 2, 0, 1, 2, 2]], background=0)
    assert (ours["acc"], ours["acc_vote"]) == (pytest.approx(100 / 3), 0.0)


def test_bad_input_is_one_line() -> None:
    with pytest.raises(InputError, match="equal lengths"):
        take_statistics([1, 2], [1])
    with pytest.raises(InputError, match="ltcontext"):
        segmentation_scores([[1]], [[1]], convention="coco")
