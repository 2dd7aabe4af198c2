"""What `pjepa data check` finds in a source, each finding in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pjepa.core.tables import Classes, FeatureInfo, VideoRow
from pjepa.patches.config import PatchesConfig
from pjepa.takes.annotations.text_files import Note
from pjepa.takes.source import take_row
from pjepa.tools.check import check_source, damaged_videos
from pjepa.tools.params import Params
from tests.video.films import write_film, write_patched
from tests.worlds.small_source import HALVES, lines, small_source

OWN, OFFICIAL = {"data": {"source": "folder"}}, {"data": {"source": "egoprocel"}}
CUSTOM = {"data": {"source": "mstcn", "mstcn": {"dataset": "mine"}}}
FREE = {"pjepa": {"attention": "block_causal", "segments": "fixed"}}
ONE_STRENGTH = {"linear": {"l2": [0.01]}}
TWO_PROBES = {"cells": {"probes": ["linear", "attentive"]}}
UNCHOSEN = (
    "error: no labelled train take is held out to choose on ({}); label more groups of train, each "
    "class in two or more, or set {}"
)
LINEAR = UNCHOSEN.format("linear", "probe.linear.l2 to one strength")
UNLABELLED = "warning: no take has labels: probes will be skipped, features are written"


def without(*takes: str, label: int | None = None) -> dict[str, Any]:
    """Without the segments of these takes, or with those of one label only."""
    return {"spans": [s for s in HALVES if s[0] not in takes or s[3] == label]}


def more(*spans: tuple[str, float, float, int]) -> dict[str, Any]:
    return {"spans": [*HALVES, *spans]}


SPELT = {
    "classes": Classes(("background", "stir the egg", "stir teh egg", "screw 1", "screw 2"), 0),
    "spans": [
        *((f"t{take}", k, k + 0.5, 1) for take in (0, 2) for k in range(9)),
        ("t1", 0, 1, 2), ("t0", 9, 10, 3), *(("t1", k, k + 1, 4) for k in range(2, 9)),
        ("t3", 0, 1, 1),
    ],
}  # fmt: skip
TYPO = (
    "warning: 1 labels may be typos: 'stir teh egg' (1 segments; 'stir the egg' has 19)",
    "warning: 1 classes without a segment: background",
)
CASES: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    *(
        ({"same": what}, params, [f"{level}: 1 {what}s in train and in val: one (2 takes)"])
        for what, own in (("recording", "error"), ("group", "error"), ("participant", "warning"))
        for params, level in ((OWN, own), (CUSTOM, own), (OFFICIAL, "warning"))
    ),
    (  # what pretraining saw is no test either
        {"same": "group", "splits": "pretrain train val test"}, OWN,
        ["error: 1 groups in train and in val: one (2 takes)", LINEAR],
    ),
    (more(("t0", 4.0, 6.0, 1)), {},
     ["warning: 2 segments overlap an earlier one, tokens.overlap decides: t0"]),
    (more(("t0", 0.0, 5.0, 0)), {},
     ["warning: 1 segments overlap an earlier one, tokens.overlap decides: t0",
      "warning: 1 segments occur more than once"]),
    ({"spans": [*HALVES[:-1], ("t3", 5.0, 11.5, 1)]}, {},
     ["error: 1 segments end over 1 s after their video (another rate?): t3"]),
    (SPELT, OWN | FREE, [*TYPO, LINEAR]),
    (SPELT | {"listed": frozenset(SPELT["classes"].names)}, OWN | FREE, [TYPO[1], LINEAR]),
    (SPELT, {"data": {"source": "assembly101"}} | FREE, [TYPO[1], LINEAR]),
    ({"classes": Classes(("open valve", "Open  Valve"), None)}, OWN,
     ["warning: 1 labels may be typos: 'Open  Valve' (4 segments; 'open valve' has 4)"]),
    (without("t2"), {},
     ["error: 1 takes have no segments and pjepa.segments is annotated; use "
      "pjepa.attention=block_causal pjepa.segments=fixed (or pjepa.segments=found)"]),
    (without("t2"), FREE, []),
    (without("t2"), FREE | {"tokens": {"gaps": "drop"}},
     ["error: 1 takes have no segments: tokens.gaps=drop leaves nothing"]),
    ({"spans": []}, FREE, [UNLABELLED]),
    ({"spans": []}, FREE | {"pooler": {"kind": "action"}},
     [UNLABELLED, "error: no take has labels and pooler.kind is action; label some, or use mean"]),
    (without("t2", "t3"), FREE,
     ["error: no take of val or test has labels: probes have nothing to score"]),
    (without("t3", label=0), {},
     ["error: the takes of test show background only: probes have nothing to score"]),
    (without("t2", label=0), {}, []),  # val is not reported where test has labels
    ({"splits": "val val test test"}, {},
     ["error: no take to pretrain on: train and pretrain are empty, or all held out (data.holdout)",
      "error: no train take has labels: probes have nothing to fit"]),
    ({"splits": "pretrain train train test"}, {}, []),
    ({"splits": "train train test test", "spans": []}, FREE | {"data": {"holdout": 0.9}},
     [UNLABELLED, "error: no take to pretrain on: train and pretrain are empty, or all held out "
      "(data.holdout)"]),
    ({"splits": "train val val test"}, {}, [LINEAR]),
    ({"splits": "train val val test"}, {"probe": ONE_STRENGTH}, []),
    ({"splits": "train val val test"}, {"probe": ONE_STRENGTH} | TWO_PROBES,
     [UNCHOSEN.format("attentive", "probe.common.select_on=last")]),
    ({"splits": "train val val test"},
     {"probe": ONE_STRENGTH | {"common": {"select_on": "last"}}} | TWO_PROBES, []),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "params", "expected"), CASES)
def test_findings(changes: dict[str, Any], params: dict[str, Any], expected: list[str]) -> None:
    assert lines(small_source(**changes), params) == expected


def test_the_table_counts_and_a_sound_source_has_no_finding() -> None:
    rows, found = check_source(small_source(), Params())
    assert rows[0] == ["train", "2", "0.01", "0.2", "80", "4", "2", "50.0", "0"]
    assert [row[0] for row in rows] == ["train", "val", "test", "all"]
    assert found == []


def test_one_line_for_a_kind_of_finding() -> None:
    """A hundred recordings in two splits are one line with three of them, not a hundred lines."""
    takes = [
        take_row(f"t{k}", "x", ("train", "test")[k % 2], recording=f"r{k // 2}") for k in range(200)
    ]
    many = small_source(
        videos=[VideoRow(row["take_id"], "x.mp4", 30.0, 10.0, root="data") for row in takes],
        takes=takes,
        spans=[(f"t{k}", 0.0, 10.0, k % 2) for k in range(200)],
        notes=[Note("cues without text not used", (f"{k}.vtt (1)",)) for k in range(50)],
    )
    assert lines(many, OFFICIAL)[:2] == [
        "warning: cues without text not used: 0.vtt (1), 1.vtt (1), 2.vtt (1) and 47 more",
        "warning: 100 recordings in test and in train: r0 (2 takes), r1 (2 takes), r10 (2 takes) "
        "and 97 more",
    ]
    every = check_source(many, Params.model_validate(OFFICIAL))[1][1].line()
    assert all(f"r{k} (2 takes)" in every for k in range(100))


def test_features_slower_than_the_tokens_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rates = {"t0": 4.0, "t1": 2.0, "t2": 3.0, "t3": 3.99}  # the last is as good as the same
    for name in rates:
        np.save(f"{name}.npy", np.zeros((40, 3), np.float32))
    videos = [VideoRow(name, None, rate, 10.0, f"npy:{name}.npy") for name, rate in rates.items()]
    (line,) = lines(small_source(videos=videos, features=FeatureInfo("x", 0.0)))
    assert line.startswith("error: 2 takes with fewer features per second than tokens.fps 4; ")
    assert line.endswith("set tokens.fps=2 or less: t1 (2), t2 (3)")


def test_decoding_finds_damage_inside_a_video(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_patched(write_film(Path("good.mp4")), Path("patched.mp4"))
    for number in range(4):
        Path(f"patched{number}.mp4").write_bytes(Path("patched.mp4").read_bytes())
    Path("text.mp4").write_text("no video")
    names = ("good", "patched", *(f"patched{number}" for number in range(4)), "text")
    films = small_source(videos=[VideoRow(name, f"{name}.mp4", 16.0, 2.5) for name in names])
    closed, damaged = damaged_videos(films, PatchesConfig())
    assert closed.line().startswith("error: 1 videos cannot be read: text.mp4: cannot be decoded")
    line = damaged.line(3)  # one line, three of five examples
    assert line.startswith("error: 5 videos with frames that cannot be decoded (")
    assert "patched.mp4: 3 of 40 frames cannot be decoded, from " in line
    assert (line.count("3 of 40 frames"), line.endswith("and 2 more")) == (3, True)
    repeating = PatchesConfig(on_error="repeat")
    assert [each.level for each in damaged_videos(films, repeating)] == ["error", "warning"]
