"""`pjepa data check`: what later stages need of the takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pjepa.core.tables import FeatureInfo, VideoRow
from pjepa.takes.source import Source
from tests.tools.small_source import findings, small_source


def texts(source: Source, **params: Any) -> list[str]:
    return [f.line() for f in findings(source, **params) if f.level == "error"]


def shipped_source(**fps: float) -> Source:
    rates = {f"t{k}": 4.0 for k in range(4)} | fps
    rows = [VideoRow(name, None, rate, 10.0, f"npy:{name}.npy") for name, rate in rates.items()]
    return small_source(videos=rows, features=FeatureInfo("x", 0.0))


def test_features_slower_than_the_tokens_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("t0", "t1", "t2", "t3"):
        np.save(f"{name}.npy", np.zeros((40, 3), np.float32))
    assert texts(shipped_source()) == []
    assert texts(shipped_source(t1=3.99)) == []  # as good as the same
    assert texts(shipped_source(t1=2.0, t2=3.0)) == [
        "error: 2 takes with fewer features per second than tokens.fps 4; set tokens.fps=2 or "
        "less: t1 (2), t2 (3)"
    ]


def moved(*splits: str) -> list[dict[str, Any]]:
    takes = [dict(take) for take in small_source().takes]
    return [{**take, "split": split} for take, split in zip(takes, splits, strict=True)]


def test_nothing_to_pretrain_on_is_an_error() -> None:
    told = texts(small_source(takes=moved("val", "val", "test", "test")))
    assert told[0].startswith("error: no take to pretrain on: train and pretrain are empty")
    assert "error: no train take has labels: probes have nothing to fit" in told
    assert texts(small_source(takes=moved("pretrain", "train", "train", "test"))) == []
    unlabelled = small_source(takes=moved("train", "train", "test", "test"), segments=[])
    free = {"pjepa": {"attention": "block_causal", "segments": "fixed"}, "data": {"holdout": 0.9}}
    assert "or all held out (data.holdout)" in texts(unlabelled, **free)[0]


def test_no_take_to_choose_on_is_an_error_with_the_remedy() -> None:
    one_train = small_source(takes=moved("train", "val", "val", "test"))
    two_views = small_source(takes=[{**t, "group": "one"} for t in moved(*["train"] * 4)[:3]]
                             + moved(*["test"] * 4)[3:])  # fmt: skip
    for source in (one_train, two_views):
        (told,) = texts(source)
        assert told == (
            "error: no labelled train take is held out to choose on (linear); label more groups of "
            "train, each class in two or more, or set probe.linear.l2 to one strength"
        )
        one_strength = {"linear": {"l2": [0.01]}}
        assert texts(source, probe=one_strength) == []
        cells = {"probes": ["linear", "attentive"]}
        assert texts(source, probe=one_strength, cells=cells)[0].endswith(
            "to choose on (attentive); label more groups of train, each class in two or more, "
            "or set probe.common.select_on=last"
        )
        last = {**one_strength, "common": {"select_on": "last"}}
        assert texts(source, probe=last, cells=cells) == []


def test_background_alone_is_nothing_to_score_on() -> None:
    def only(*takes: str) -> Source:
        return small_source(
            segments=[s for s in small_source().segments if s.take_id not in takes or not s.label]
        )

    told = "error: the takes of {} show background only: probes have nothing to score"
    assert texts(only("t3")) == [told.format("test")]
    assert texts(only("t2")) == []  # val is not reported where test has labels
    unlabelled_test = [s for s in only("t2").segments if s.take_id != "t3"]
    free = {"pjepa": {"attention": "block_causal", "segments": "fixed"}}
    assert texts(small_source(segments=unlabelled_test), **free) == [told.format("val")]
