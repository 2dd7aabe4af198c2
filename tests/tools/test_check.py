"""`pjepa data`: what people see of a source before anything is computed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from pjepa.core.tables import Classes, VideoRow
from pjepa.patches.config import PatchesConfig
from pjepa.takes.annotations.text_files import Note
from pjepa.takes.source import Annotation, take_row
from pjepa.tools.check import check_source, damaged_videos
from pjepa.tools.cli import app
from pjepa.tools.params import Params, check_params
from tests.pipeline.in_process import project, run_stages
from tests.tools.small_source import findings, small_source
from tests.video.films import write_film, write_patched
from tests.worlds.bundles import write_bundle
from tests.worlds.own_videos import COLOURS, PLANS, write_own_videos

ROOT = Path(__file__).resolve().parents[2]
FOLDER = {"data": {"source": "folder", "folder": {"path": "mine"}}}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["data", *arguments])


def test_the_table_counts() -> None:
    rows, _ = check_source(small_source(), Params())
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
    own, official = {"source": "folder"}, {"source": "egoprocel"}
    custom = {"source": "mstcn", "mstcn": {"dataset": "mine"}}
    for what, level in (("recording", "error"), ("group", "error"), ("participant", "warning")):
        divided = small_source(takes=changed_takes(**{what: "same"}))
        for data, expected in ((own, level), (custom, level), (official, "warning")):
            (finding,) = findings(divided, data=data)
            assert finding.line() == f"{expected}: 1 {what}s in train and in val: same (2 takes)"
    takes = changed_takes(group="same")
    takes[0]["split"] = "pretrain"  # what pretraining saw is no test either
    assert "in train and in val" in findings(small_source(takes=takes))[0].text


def extra(*segments: Annotation) -> list[Annotation]:
    return [*small_source().segments, *segments]


def test_odd_segments_are_found() -> None:
    overlap = extra(Annotation("t0", 4.0, 6.0, 1))
    finding = findings(small_source(segments=overlap))[0]
    assert finding.text.startswith("2 segments overlap an earlier one")
    assert finding.names == ("t0",)
    twice = extra(Annotation("t0", 0.0, 5.0, 0))
    assert "segments occur more than once" in findings(small_source(segments=twice))[1].text
    late = [*small_source().segments[:-1], Annotation("t3", 5.0, 11.5, 1)]
    (finding,) = findings(small_source(segments=late))
    assert finding.level == "error"
    assert "1 segments end over 1 s after their video (another rate?): t3" in finding.line()


def test_typos_are_suggested_but_numbers_are_not() -> None:
    classes = Classes(("background", "stir the egg", "stir teh egg", "screw 1", "screw 2"), 0)
    segments = [Annotation("t0", k, k + 0.5, 1) for k in range(9)]
    segments += [Annotation("t2", k, k + 0.5, 1) for k in range(9)] + [Annotation("t1", 0, 1, 2)]
    segments += [Annotation("t0", 9, 10, 3), *(Annotation("t1", k, k + 1, 4) for k in range(2, 9))]
    odd = small_source(classes=classes, segments=segments)
    lines = [f.line() for f in findings(odd, data={"source": "folder"})]
    typo = "'stir teh egg' (1 segments; 'stir the egg' has 18)"
    assert f"warning: 1 labels may be typos: {typo}" in lines
    assert "warning: 1 classes without a segment: background" in lines
    spelt = Classes(("open valve", "Open  Valve"), None)
    twice = [Annotation("t0", 0, 1, 0), Annotation("t2", 0, 1, 1)]
    both = small_source(classes=spelt, segments=twice)
    assert "labels may be typos" in "".join(
        f.text for f in findings(both, data={"source": "folder"})
    )
    listed = replace(odd, listed=frozenset(classes.names))  # a controlled vocabulary
    for source, data in ((listed, "folder"), (odd, "assembly101")):
        assert not [f for f in findings(source, data={"source": data}) if "typo" in f.text]


def test_one_line_for_a_kind_of_finding() -> None:
    """A hundred recordings in two splits are one line with three of them, not a hundred lines."""
    takes = [take_row(f"t{k}", "x", ("train", "test")[k % 2], recording=f"r{k // 2}")
             for k in range(200)]  # fmt: skip
    videos = [VideoRow(f"t{k}", f"{k}.mp4", 30.0, 10.0, root="data") for k in range(200)]
    segments = [Annotation(f"t{k}", 0.0, 10.0, k % 2) for k in range(200)]
    notes = [Note("cues without text not used", (f"{k}.vtt (1)",)) for k in range(50)]
    found = findings(
        small_source(videos=videos, takes=takes, segments=segments, notes=notes),
        data={"source": "egoprocel"},
    )
    assert [f.line(3) for f in found[:2]] == [
        "warning: cues without text not used: 0.vtt (1), 1.vtt (1), 2.vtt (1) and 47 more",
        "warning: 100 recordings in test and in train: r0 (2 takes), r1 (2 takes), r10 (2 takes) "
        "and 97 more",
    ]
    assert all(f"r{k} (2 takes)" in found[1].line() for k in range(100))


def test_what_params_make_of_a_source() -> None:
    some = [s for s in small_source().segments if s.take_id != "t2"]
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
    assert "(161 features, 160 labels) and 3 more\n" in bad.stdout
    assert "--all names the rest" in bad.stdout
    every = run("check", "--all").stdout
    assert "more" not in every.split("warning: data/sources")[0]
    for file in (tmp_path / "gtea/features").iterdir():
        file.unlink()
    nothing = run("check")
    assert nothing.exit_code == 1
    assert "no take is left: 8 with no features: S1_Cheese_C1, S2_Cheese_C1, S3" in nothing.output
    assert "data check" not in nothing.output  # which has just been run


def test_takes_that_may_be_skipped_are_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bundle(tmp_path / "gtea")
    (tmp_path / "gtea/features/S1_Coffee_C1.npy").unlink()
    (tmp_path / "gtea/features/S2_Coffee_C1.npy").write_bytes(b"")
    data = {"source": "mstcn", "missing": "skip", "mstcn": {"dataset": "gtea"}}
    project(tmp_path, monkeypatch, {"data": data})
    allowed = run("check")
    assert allowed.exit_code == 0, allowed.output
    assert "warning: 1 takes with no features: S1_Coffee_C1" in allowed.stdout
    assert "warning: 1 takes with unreadable features: " in allowed.stdout
    assert "not ok" not in allowed.stdout
    data["missing"] = "fail"
    project(tmp_path, monkeypatch, {"data": data})
    refused = run("check")
    assert refused.exit_code == 1
    assert "error: 1 takes with unreadable features: " in refused.stdout


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
    for number in range(4):
        Path(f"patched{number}.mp4").write_bytes(Path("patched.mp4").read_bytes())
    Path("text.mp4").write_text("no video")
    names = ("good", "patched", *(f"patched{number}" for number in range(4)), "text")
    videos = [VideoRow(name, f"{name}.mp4", 16.0, 2.5) for name in names]
    closed, damaged = damaged_videos(small_source(videos=videos), PatchesConfig())
    assert (closed.level, damaged.level) == ("error", "error")
    assert closed.line().startswith("error: 1 videos cannot be read: text.mp4: cannot be decoded")
    assert damaged.names[0].startswith("patched.mp4: 3 of 40 frames cannot be decoded, from ")
    told = damaged.line(3)  # one line, three of five examples
    assert told.startswith("error: 5 videos with frames that cannot be decoded (")
    assert told.count("3 of 40 frames") == 3
    assert told.endswith("and 2 more")
    repeating = PatchesConfig(on_error="repeat")
    levels = [finding.level for finding in damaged_videos(small_source(videos=videos), repeating)]
    assert levels == ["error", "warning"]


def test_decoding_reads_shipped_features_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_bundle(tmp_path / "gtea", time_first=True)
    for name, value in (("S1_Cheese_C1", np.nan), ("S2_Cheese_C1", 70000.0)):
        file = tmp_path / f"gtea/features/{name}.npy"
        array = np.load(file)
        array[33, 5] = value
        np.save(file, array)
    data = {"source": "mstcn", "mstcn": {"dataset": "gtea", "time_first": True}}
    project(tmp_path, monkeypatch, {"data": data, "tokens": {"fps": 15.0}})
    assert run("check").exit_code == 0  # features are not read, which may take long
    read = run("check", "--decode")
    assert read.exit_code == 1
    assert (
        "error: 2 takes whose features cannot be stored as float16: S1_Cheese_C1 (nan at 2.2 s, "
        "channel 5), S2_Cheese_C1 (70000 at 2.2 s, channel 5)\n"
    ) in read.stdout
    wide = {"data": data, "tokens": {"fps": 15.0, "dtype": "float32"}}
    project(tmp_path, monkeypatch, wide)
    assert "1 takes whose features cannot be stored as float32" in run("check", "--decode").stdout
    project(tmp_path, monkeypatch, {"data": data, "tokens": {"fps": 30.0}})
    assert "cannot be stored" not in run("check", "--decode").stdout  # told once, as too slow
    project(tmp_path, monkeypatch, {"data": data, "tokens": {"fps": 1.0}})
    assert run("check", "--decode").exit_code == 0  # frame 33 is no token's


@pytest.mark.slow
def test_names_and_labels_of_any_language_in_an_ascii_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    labels = "video,start,end,label\n"
    for number, name in enumerate(("nö", "日本", "c")):
        write_film(tmp_path / "mine" / f"{name}.mp4", number, 40)
        labels += f"{name}.mp4,0,1,größer → 切る\n{name}.mp4,1,2,切る\n"
    (tmp_path / "mine/labels.csv").write_text(labels, encoding="utf-8")
    project(tmp_path, monkeypatch, FOLDER)
    run("scan")
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONPATH": str(ROOT)}

    def told(*arguments: str) -> tuple[int, list[str]]:
        command = [sys.executable, "-m", "pjepa", *arguments]
        done = subprocess.run(command, env=ascii_only, capture_output=True)
        return done.returncode, (done.stdout + done.stderr).decode(errors="replace").splitlines()

    code, lines = told("data", "check", "--all")
    assert code == 0, lines
    assert "ok" in lines
    assert not [line for line in lines if "Traceback" in line]
    code, lines = told("predict", "fehlt-ü.mp4", "--out", "x")
    assert code == 1
    assert len(lines) == 1
    assert "no such video" in lines[0]


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
    assert "exists already" in run("init", str(tmp_path / "films")).stdout
    assert run("init", str(tmp_path / "nowhere")).exit_code == 1
    (tmp_path / "films/d.vtt").write_text("WEBVTT\n\n00:00.000 --> 00:02.000\ncut\n")
    said = run("init", str(tmp_path / "films")).stdout
    assert "1 files look like annotations: d.vtt; data.folder.labels can name them" in said
    refused = run("init", str(tmp_path / "films"), "--pooler", "action")
    assert (refused.exit_code, "no labels, which the action pooler" in refused.output) == (1, True)


def test_init_applies_its_preset_and_offers_the_action_pooler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_own_videos(tmp_path / "my films")
    project(tmp_path / "project", monkeypatch, {"pjepa": {"mask_ratio": 0.3}}, tmp_path)
    monkeypatch.setenv("PJEPA_CACHE", str(tmp_path / "no weights"))
    said = run("init", str(tmp_path / "my films")).stdout
    params = check_params()
    chosen = (params.patches.backbone, params.pooler.kind, params.pjepa.attention)
    assert chosen == ("vjepa2_1_vit_large_384", "mean", "block_causal")
    assert (params.pjepa.mask_ratio, params.report.git_revision) == (0.8, True)
    assert "probes on 4 labelled videos" in said
    assert "run `pjepa fetch vjepa2_1_vit_large_384`" in said
    assert "dvc exp run -S patches.backbone=vjepa2_1_vit_tiny -S patches.checkpoint=random" in said
    text = Path("params.yaml").read_text()
    Path("params.yaml").write_text(text.replace("mask_ratio: 0.8", "mask_ratio: 0.7"))
    assert f"init '{tmp_path / 'my films'}' --pooler action" in said
    again = run("init", str(tmp_path / "my films"), "--pooler", "action")
    assert again.exit_code == 0, again.output
    params = check_params()
    assert (params.pooler.kind, params.patches.grid) == ("action", 4)
    assert params.pjepa.mask_ratio == 0.7  # the user's own params are kept
    assert "offer:" not in again.stdout
    assert run("check").exit_code == 0
    text = Path("params.yaml").read_text()
    Path("params.yaml").write_text(text.replace("crop: 0", "crop: 32"))
    coarse = run("init", str(tmp_path / "my films"), "--pooler", "action")
    assert (coarse.exit_code, "grid 4 is finer than the 2 patches" in coarse.stderr) == (1, True)
    Path("params.yaml").write_text(text)
    (tmp_path / "my films/labels.csv").write_text("video,start,end,label\n")
    checked = run("check")
    assert checked.exit_code == 1
    assert "no take has labels and pooler.kind is action" in checked.stdout
