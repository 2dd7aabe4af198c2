"""`pjepa data`: what people see of a source before anything is computed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from pjepa.cli import app
from pjepa.config.params import Params
from pjepa.takes.check import Finding, check_source, damaged_videos
from pjepa.takes.manifest import Classes, VideoRow
from pjepa.takes.source import Annotation, Source, take_row
from tests.pipeline.in_process import project, run_stages
from tests.takes.bundles import write_bundle
from tests.takes.own_videos import COLOURS, PLANS, write_own_videos
from tests.video.films import write_film, write_patched

FOLDER = {"data": {"source": "folder", "folder": {"path": "mine"}}}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["data", *arguments])


def small_source(**changes: Any) -> Source:
    """Four takes of 10 s; two classes each half of the time."""
    videos = [VideoRow(f"t{k}", f"{k}.mp4", 30.0, 10.0, root="data") for k in range(4)]
    takes = [take_row(f"t{k}", "x", split, participant=f"p{k}")
             for k, split in enumerate(("train", "train", "val", "test"))]  # fmt: skip
    segments = [
        Annotation(f"t{k}", *span, label) for k in range(4) for label, span in
        enumerate(((0.0, 5.0), (5.0, 10.0)))
    ]  # fmt: skip
    values = {"videos": videos, "takes": takes, "segments": segments}
    return Source(**{**values, "classes": Classes(("background", "cut"), 0), **changes})


def findings(source: Source, **params: Any) -> list[Finding]:
    return check_source(source, Params.model_validate(params)).findings


def test_the_table_counts() -> None:
    rows = check_source(small_source(), Params()).rows
    assert rows[0] == ["train", "2", "0.01", "0.2", "80", "4", "2", "50.0", "0"]
    assert [row[0] for row in rows] == ["train", "val", "test", "all"]
    assert rows[-1][:5] == ["all", "4", "0.01", "0.2", "160"]
    assert findings(small_source()) == []


def changed_takes(**changes: Any) -> list[dict[str, Any]]:
    takes = [dict(take) for take in small_source().takes]
    for name, value in changes.items():
        takes[0][name] = takes[2][name] = value
    return takes


def test_leakage_is_found_by_recording_group_and_participant() -> None:
    for what, level in (("recording", "error"), ("group", "error"), ("participant", "warning")):
        (finding,) = findings(small_source(takes=changed_takes(**{what: "same"})))
        assert finding == Finding(level, f"{what} 'same' is in train and val: 2 takes")
    takes = changed_takes(group="same")
    takes[0]["split"] = "pretrain"  # what pretraining saw is no test either
    assert "is in train and val" in findings(small_source(takes=takes))[0].text


def extra(*segments: Annotation) -> list[Annotation]:
    return [*small_source().segments, *segments]


def test_odd_segments_are_found() -> None:
    overlap = extra(Annotation("t0", 4.0, 6.0, 1))
    assert (
        "2 segments overlap an earlier one (t0)" in findings(small_source(segments=overlap))[0].text
    )
    twice = extra(Annotation("t0", 0.0, 5.0, 0))
    assert "stand there more than once" in findings(small_source(segments=twice))[1].text
    late = [*small_source().segments[:-1], Annotation("t3", 5.0, 11.5, 1)]
    (finding,) = findings(small_source(segments=late))
    assert finding.level == "error"
    assert "1 segments end over 1 s after their video (t3)" in finding.text


def test_typos_are_suggested_but_numbers_are_not() -> None:
    classes = Classes(("background", "stir the egg", "stir teh egg", "screw 1", "screw 2"), 0)
    segments = [Annotation("t0", k, k + 0.5, 1) for k in range(9)]
    segments += [Annotation("t2", k, k + 0.5, 1) for k in range(9)] + [Annotation("t1", 0, 1, 2)]
    segments += [Annotation("t0", 9, 10, 3), *(Annotation("t1", k, k + 1, 4) for k in range(2, 9))]
    texts = [f.text for f in findings(small_source(classes=classes, segments=segments))]
    assert "label 'stir teh egg' (1 segments): did you mean 'stir the egg' (18)?" in texts
    assert not [text for text in texts if text.startswith("label 'screw")]
    assert "1 classes without a segment: background" in texts


def test_what_params_make_of_a_source() -> None:
    some = [s for s in small_source().segments if s.take_id != "t1"]
    (finding,) = findings(small_source(segments=some))
    assert finding.level == "error"
    assert "1 takes have no segments and pjepa.segments is annotated" in finding.text
    free = {"pjepa": {"attention": "block_causal", "segments": "fixed"}}
    assert findings(small_source(segments=some), **free) == []
    unlabelled = findings(small_source(segments=[]), **free)
    assert [f.level for f in unlabelled] == ["warning"]
    unscored = [s for s in small_source().segments if s.take_id in ("t0", "t1")]
    assert "nothing to score" in findings(small_source(segments=unscored), **free)[0].text


def test_check_prints_a_table_and_ends_with_a_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bundle(tmp_path / "gtea")
    values = {"data": {"source": "mstcn", "mstcn": {"dataset": "gtea"}}}
    project(tmp_path, monkeypatch, values)
    good = run("check", "--json", "check.json")
    assert good.exit_code == 0, good.output
    assert "source mstcn, tokens at 4 per second" in good.stdout
    stored = json.loads(Path("check.json").read_text())
    assert stored["table"][-1]["takes"] == "8"
    assert "warning: data/sources/mstcn.json: no such file; run `pjepa data scan" in good.stdout
    assert run("scan").exit_code == 0
    assert "data/sources" not in run("check").stdout
    (tmp_path / "gtea/features/S1_Coffee_C1.npy").unlink()
    np.save(tmp_path / "gtea/features/S2_Coffee_C1.npy", np.zeros((9, 160), np.float32))
    bad = run("check")
    assert bad.exit_code == 1
    assert "error: 1 takes with no features: S1_Coffee_C1" in bad.stdout
    assert "(and 1 more); run `pjepa data scan mstcn`" in bad.stdout
    assert "error: features of different widths: 8 (S1_Cheese_C1), 9 (S2_Coffee_C1)" in bad.stdout


def test_check_knows_the_demo_without_filming_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path, monkeypatch, {})
    assert run("scan").exit_code == 0
    assert run("check").exit_code == 0
    assert not (tmp_path / "data/demo").exists()


def test_view_draws_the_middle_of_every_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_own_videos(tmp_path / "mine")
    project(tmp_path, monkeypatch, FOLDER)
    result = run("view", "deep/c")
    assert result.exit_code == 0, result.output
    assert "deep%2Fc.png: 3 of 3 segments" in result.stdout
    picture = np.asarray(Image.open("deep%2Fc.png").convert("RGB")).astype(int)
    row = picture[picture.shape[0] // 2 + 20]  # through the middle of the tiles
    shown = [
        name for name in PLANS["deep/c.mp4"]
        if (np.abs(row - COLOURS[name]).max(axis=1) < 60).sum() > 60
    ]  # fmt: skip
    assert shown == [*PLANS["deep/c.mp4"]]
    run_stages(["takes"])
    tables = run("view", "deep/c", "--out", "again.png")
    assert tables.exit_code == 0
    assert Path("again.png").read_bytes() == Path("deep%2Fc.png").read_bytes()
    labels = tmp_path / "mine/labels.csv"
    labels.write_text(labels.read_text() + "\ndeep/c,5,6,cut")
    edited = run("view", "deep/c")  # data/takes still has what was there before
    assert "4 of 4 segments" in edited.stdout
    assert "data/takes is older than params or data: read from the source" in edited.stderr
    wrong = run("view", "deep/cc")
    assert wrong.exit_code == 1
    assert "did you mean deep/c?" in wrong.output


def test_decoding_finds_damage_inside_a_video(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_patched(write_film(Path("good.mp4")), Path("patched.mp4"))
    videos = [VideoRow(name, f"{name}.mp4", 16.0, 2.5) for name in ("good", "patched")]
    (finding,) = damaged_videos(small_source(videos=videos))
    assert finding.level == "error"
    assert "take patched: patched.mp4: 1 of 40 frames cannot be decoded" in finding.text


def test_view_of_shipped_features_says_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bundle(tmp_path / "gtea")
    project(tmp_path, monkeypatch, {"data": {"source": "mstcn", "mstcn": {"dataset": "gtea"}}})
    result = run("view", "S1_Cheese_C1")
    assert result.exit_code == 1
    assert "ships features, no video to draw" in result.output


def test_init_begins_with_a_folder_of_videos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_own_videos(tmp_path / "films")
    (tmp_path / "films/labels.csv").unlink()
    project(tmp_path / "project", monkeypatch, {})
    monkeypatch.delenv("PJEPA_DATA_ROOT")
    before = Path("params.yaml").read_text()
    assert run("init", str(tmp_path / "films"), "--dry-run").exit_code == 0
    assert Path("params.yaml").read_text() == before
    assert not (tmp_path / "films/labels.csv").exists()
    result = run("init", str(tmp_path / "films"))
    assert result.exit_code == 0, result.output
    assert "+  source: folder" in result.stdout
    assert str(tmp_path) not in Path("params.yaml").read_text()
    assert str(tmp_path) not in Path("data/sources/folder.json").read_text()
    lines = (tmp_path / "films/labels.csv").read_text().splitlines()
    assert lines[0].startswith("video,start,end,label,split")
    assert [line.split(",")[0] for line in lines[1:]] == sorted(PLANS)
    checked = run("check")
    assert checked.exit_code == 0, checked.output  # unlabelled, with segments that need no labels
    assert "probes will be skipped" in checked.stdout
    assert "is there already" in run("init", str(tmp_path / "films")).stdout
    assert run("init", str(tmp_path / "nowhere")).exit_code == 1
