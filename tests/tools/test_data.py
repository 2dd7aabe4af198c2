"""`pjepa data`: what people see of a source before anything is computed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from pjepa.tools.cli import app
from pjepa.tools.params import check_params
from tests.pipeline.in_process import project, run_stages
from tests.video.films import write_film
from tests.worlds.bundles import write_bundle
from tests.worlds.own_videos import COLOURS, PLANS, write_own_videos

ROOT = Path(__file__).resolve().parents[2]
FOLDER = {"data": {"source": "folder", "folder": {"path": "mine"}}}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["data", *arguments])


@pytest.fixture
def gtea(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The features of a small bundle that ships them."""
    write_bundle(tmp_path / "gtea", time_first=True)
    project(tmp_path, monkeypatch, shipped())
    return tmp_path / "gtea/features"


def shipped(missing: str = "fail", **tokens: object) -> dict[str, object]:
    own = {"dataset": "gtea", "time_first": True}
    return {"data": {"source": "mstcn", "missing": missing, "mstcn": own}, "tokens": tokens}


def test_check_prints_a_table_and_ends_with_a_code(gtea: Path) -> None:
    good = run("check", "--json", "check.json")
    assert good.exit_code == 0, good.output
    assert "source mstcn, tokens at 4 per second" in good.stdout
    assert json.loads(Path("check.json").read_text())["table"][-1]["takes"] == "8"
    assert "warning: data/sources/mstcn.json: no such file; run `pjepa data scan" in good.stdout
    assert run("scan").exit_code == 0
    assert "data/sources" not in run("check").stdout
    assert "ships features, no video to draw" in run("view", "S1_Cheese_C1").output
    (gtea / "S1_Coffee_C1.npy").unlink()
    np.save(gtea / "S2_Coffee_C1.npy", np.zeros((160, 9), np.float32))
    bad = run("check")
    assert bad.exit_code == 1
    for line in (
        "error: 1 takes with no features: S1_Coffee_C1\n",
        "error: features of different widths: 8 (S1_Cheese_C1), 9 (S2_Coffee_C1)\n",
        "(and 1 more); run `pjepa data scan mstcn`\n",
        "(161 features, 160 labels) and 3 more\n",
        "--all names the rest\n",
    ):
        assert line in bad.stdout
    assert "more" not in run("check", "--all").stdout.split("warning: data/sources")[0]
    for file in gtea.iterdir():
        file.unlink()
    nothing = run("check")
    assert nothing.exit_code == 1
    assert "no take is left: 8 with no features: S1_Cheese_C1, S2_Cheese_C1, S3" in nothing.output
    assert "data check" not in nothing.output  # which has just been run


def test_takes_that_may_be_skipped_are_a_warning(
    gtea: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (gtea / "S1_Coffee_C1.npy").unlink()
    (gtea / "S2_Coffee_C1.npy").write_bytes(b"")
    for missing, level, code in (("skip", "warning", 0), ("fail", "error", 1)):
        project(gtea.parents[1], monkeypatch, shipped(missing))
        done = run("check")
        assert done.exit_code == code
        for what in ("no features: S1_Coffee_C1", "unreadable features: "):
            assert f"{level}: 1 takes with {what}" in done.stdout
        assert ("not ok" in done.stdout) == bool(code)


@pytest.mark.parametrize(
    ("tokens", "line"),
    [
        ({"fps": 15.0}, "as float16: S1_Cheese_C1 (nan at 2.2 s, channel 5), S2_Cheese_C1 (70000 "),
        ({"fps": 15.0, "dtype": "float32"}, "1 takes whose features cannot be stored as float32"),
        ({"fps": 1.0}, None),  # frame 33 is no token's
    ],
)
def test_decoding_reads_shipped_features_too(
    gtea: Path, monkeypatch: pytest.MonkeyPatch, tokens: dict[str, object], line: str | None
) -> None:
    for name, value in (("S1_Cheese_C1", np.nan), ("S2_Cheese_C1", 70000.0)):
        array = np.load(gtea / f"{name}.npy")
        array[33, 5] = value
        np.save(gtea / f"{name}.npy", array)
    project(gtea.parents[1], monkeypatch, shipped(**tokens))
    assert "cannot be stored" not in run("check").stdout  # not read, which may take long
    read = run("check", "--decode").stdout
    assert ("cannot be stored" in read) == (line is not None)
    assert (line or "") in read


def test_check_knows_the_demo_without_filming_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path, monkeypatch, {})
    assert (run("scan").exit_code, run("check").exit_code) == (0, 0)
    assert not (tmp_path / "data/demo").exists()


def test_view_draws_the_middle_of_every_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_own_videos(tmp_path / "mine")
    project(tmp_path, monkeypatch, FOLDER)
    assert "deep%2Fc.png: 3 of 3 segments" in run("view", "deep/c").stdout
    picture = np.asarray(Image.open("deep%2Fc.png").convert("RGB")).astype(int)
    row = picture[picture.shape[0] // 2 + 20]  # through the middle of the tiles
    shown = [
        name for name in PLANS["deep/c.mp4"]
        if (np.abs(row - COLOURS[name]).max(axis=1) < 60).sum() > 60
    ]  # fmt: skip
    assert shown == [*PLANS["deep/c.mp4"]]
    run_stages(["takes"])
    assert run("view", "deep/c", "--out", "again.png").exit_code == 0
    assert Path("again.png").read_bytes() == Path("deep%2Fc.png").read_bytes()
    labels = tmp_path / "mine/labels.csv"
    labels.write_text(labels.read_text() + "\ndeep/c,5,6,cut")
    edited = run("view", "deep/c")  # data/takes still has what was there before
    assert "4 of 4 segments" in edited.stdout
    assert "data/takes is older than params or data: read from the source" in edited.stderr
    wrong = run("view", "deep/cc")
    assert (wrong.exit_code, "did you mean deep/c?" in wrong.output) == (1, True)


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
    for words, code, text in (
        (["data", "check", "--all"], 0, "ok"),
        (["predict", "fehlt-ü.mp4", "--out", "x"], 1, "no such video"),
    ):
        command = [sys.executable, "-m", "pjepa", *words]
        done = subprocess.run(command, env=ascii_only, capture_output=True)
        output = (done.stdout + done.stderr).decode(errors="replace").splitlines()
        assert done.returncode == code, output
        assert [line for line in output if text in line]
        assert not [line for line in output if "Traceback" in line]


def test_init_begins_with_a_folder_of_videos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tests/pipeline/test_own_videos.py goes on to features and an answer."""
    films = tmp_path / "films"
    write_own_videos(films)
    (films / "labels.csv").unlink()
    project(tmp_path / "project", monkeypatch, {})
    monkeypatch.delenv("PJEPA_DATA_ROOT")
    before = Path("params.yaml").read_text()
    assert run("init", str(films), "--dry-run").exit_code == 0
    assert Path("params.yaml").read_text() == before
    assert not (films / "labels.csv").exists()
    result = run("init", str(films))
    assert result.exit_code == 0, result.output
    assert "+  source: folder" in result.stdout
    for written in ("params.yaml", "data/sources/folder.json"):
        assert str(tmp_path) not in Path(written).read_text()
    lines = (films / "labels.csv").read_text().splitlines()
    assert lines[0].startswith("video,start,end,label,split")
    assert [line.split(",")[0] for line in lines[1:]] == sorted(PLANS)
    (films / "d.vtt").write_text("WEBVTT\n\n00:00.000 --> 00:02.000\ncut\n")
    again = run("init", str(films)).stdout
    assert "exists already" in again
    assert "1 files look like annotations: d.vtt; data.folder.labels can name them" in again
    for words, error in (
        ([str(tmp_path / "nowhere")], "no such folder"),
        ([str(films), "--pooler", "action"], "no labels, which the action pooler"),
    ):
        refused = run("init", *words)
        assert (refused.exit_code, error in refused.output) == (1, True)


def test_init_applies_its_preset_and_keeps_what_people_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    films = tmp_path / "my films"
    write_own_videos(films)
    project(tmp_path / "project", monkeypatch, {"pjepa": {"mask_ratio": 0.3}}, tmp_path)
    monkeypatch.setenv("PJEPA_CACHE", str(tmp_path / "no weights"))
    assert f"init '{films}' --pooler action" in run("init", str(films)).stdout
    params = check_params()
    chosen = (params.patches.backbone, params.pooler.kind, params.pjepa.attention)
    assert chosen == ("vjepa2_1_vit_large_384", "mean", "block_causal")
    assert (params.pjepa.mask_ratio, params.report.git_revision) == (0.8, True)

    def edit(old: str, new: str) -> Result:
        Path("params.yaml").write_text(Path("params.yaml").read_text().replace(old, new))
        return run("init", str(films), "--pooler", "action")

    again = edit("mask_ratio: 0.8", "mask_ratio: 0.7")
    assert (again.exit_code, "offer:" in again.stdout) == (0, False), again.output
    params = check_params()
    assert (params.pooler.kind, params.patches.grid, params.pjepa.mask_ratio) == ("action", 4, 0.7)
    refused = edit("crop: 0", "crop: 32")
    assert refused.exit_code == 1
    assert "patches: grid 4 is finer than the 2 patches a side" in refused.output
