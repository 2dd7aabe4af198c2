"""`pjepa extract` and `pjepa plan`: files, sidecars, names, resume, bad videos."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from typer.testing import CliRunner, Result

from pjepa.patches.backbone import backbone_facts
from pjepa.patches.config import PatchesConfig
from pjepa.patches.encode import Job, encoded_job
from pjepa.patches.store import read_patches
from pjepa.streams.stream import read_stream
from pjepa.tools.cli import app
from pjepa.tools.own_videos import own_videos
from pjepa.ui.console import InputError
from tests.patches.patch_infos import inline
from tests.pipeline.in_process import project, run_stages
from tests.video.films import write_film

TINY = ["--backbone", "vjepa2_1_vit_tiny", "--crop", "32", "--frames-per-window", "8"]
SETTINGS = [*TINY, "--checkpoint", "random"]


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The executors have tests of their own; here takes are encoded in this process."""
    monkeypatch.setattr("pjepa.patches.local.chosen_executor", lambda config: inline)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def extracted(*arguments: object) -> Result:
    return run("extract", *arguments, *SETTINGS)


def expected(path: Path, grid: int = 1) -> np.ndarray:
    """The patches of a video with the same settings, [T, cells, D]."""
    config = PatchesConfig(
        backbone="vjepa2_1_vit_tiny", checkpoint="random", frames_per_window=8, crop=32,
        window_scope="take", grid=grid, batch_windows=1,
    )  # fmt: skip
    target = path.with_suffix(".safetensors")
    job = Job("x", path.name, path, 0.0, None, target)
    assert encoded_job(job, config, backbone_facts(config), lambda frames: None).reason is None
    patches = np.array(read_patches(target).patches)
    target.unlink()
    return patches


def test_one_video_becomes_one_token_per_step_with_a_sidecar(tmp_path: Path) -> None:
    film, out = write_film(tmp_path / "a film.mp4"), tmp_path / "out"
    result = extracted(film, "--out", out)
    assert result.exit_code == 0, result.output
    tokens = np.load(out / "a film.npy")
    assert (tokens.shape, tokens.dtype) == ((10, 64), np.float32)  # 2.5 s at 4 tokens a second
    np.testing.assert_array_equal(tokens, expected(film)[:, 0].astype(np.float32))
    sidecar = json.loads((out / "a film.npy.json").read_text())
    about = {"fps": 4.0, "tokens": 10, "shape": [10, 64], "axes": "time, feature"}
    about |= {"checkpoint_id": "random-vjepa2_1_vit_tiny-0", "frames_lost": 0}
    about |= {"lookahead_s": 1.0, "time_s": [k / 4 for k in range(10)]}  # 8 frames, 8 a second
    assert {name: sidecar[name] for name in about} == about
    assert sidecar["extraction"]["frames_per_window"] == 8
    assert not list((out / ".pjepa").glob("*.safetensors"))  # nothing is kept twice


def test_every_format_holds_the_same_numbers(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write_film(tmp_path / "a.mp4", frames=20)
    film = tmp_path / "in" / ".." / "a.mp4"  # a name never leaves the folder of outputs
    mean, half = expected(film)[:, 0], ["--dtype", "float16"]
    for form in ("npy-dt", "safetensors", "parquet"):
        done = extracted(film, "--out", tmp_path / form, "--format", form, *half)
        assert done.exit_code == 0, done.output
    np.testing.assert_array_equal(np.load(tmp_path / "npy-dt/a.npy"), mean.T)
    tensors = load_file(tmp_path / "safetensors/a.safetensors")
    np.testing.assert_array_equal(tensors["features"], mean)
    np.testing.assert_array_equal(tensors["time_s"], np.arange(5) / 4)
    stream = read_stream(tmp_path / "parquet/a.parquet")
    assert stream.info.provenance.lookahead_s == 1.0
    np.testing.assert_array_equal(stream.read("a").features, mean.astype(np.float32))
    assert extracted(film, "--out", tmp_path / "all", "--pool", "none").exit_code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "all/a.npy"), expected(film, 0))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("--grid 2", "--grid needs --pool none"),
        ("--window-stride 2", "--window-stride needs --window-mode trailing"),
        ("--segments fixed", "--segments needs --model"),
        ("--pool none --format parquet", "--format parquet holds one token per row"),
        ("--shard 2/2", "--shard 2/2: expected 0/2 to 1/2"),
        ("--shard 1", "--shard 1: expected two numbers such as 0/8"),
        # there is no params.yaml for videos that are named: `patches.grid` is --grid here
        ("--backbone vjepa3", "--backbone: 'vjepa3' is not one of"),
        ("--backbone timm:resnet9000", "--backbone: timm has no model 'resnet9000'"),
        ("--crop 30", "crop 30 is not a multiple"),
        ("--precision fp8", "--precision = 'fp8': Input should be"),
    ],
)
def test_options_that_cannot_be_are_one_line(tmp_path: Path, options: str, error: str) -> None:
    film, out = write_film(tmp_path / "a.mp4", frames=10), tmp_path / "o"
    refused = run("extract", film, "--out", out, *SETTINGS, *options.split())
    assert refused.exit_code == 1
    assert f"error: {error}" in refused.stderr.replace("error: extract: ", "error: ")
    assert "patches." not in refused.stderr
    assert not out.exists()


@pytest.mark.parametrize("command", ["extract", "plan"])
def test_takes_of_the_project_follow_its_params(command: str) -> None:
    refused = run(command, "--backbone", "vjepa2_1_vit_base_384")
    assert refused.exit_code == 1
    assert f"{command}: --backbone is for videos that are named" in refused.stderr


def test_a_folder_is_mirrored_resumed_and_redone_when_settings_change(tmp_path: Path) -> None:
    films, out = tmp_path / "films", tmp_path / "out"
    (films / "day 1").mkdir(parents=True)
    for number, name in enumerate(("a.mp4", "a.mkv", "day 1/b.mp4")):
        write_film(films / name, number, 20)
    (films / "notes.txt").write_text("not a video")
    assert extracted(films, "--out", out).exit_code == 0
    made = {path: path.stat().st_mtime_ns for path in out.rglob("*.npy")}
    assert {str(p.relative_to(out)) for p in made} == {"a.mp4.npy", "a.mkv.npy", "day 1/b.npy"}
    (out / "day 1/b.npy").unlink()
    assert "2 of 3 videos are done already" in extracted(films, "--out", out).stderr
    assert (out / "day 1/b.npy").exists()
    assert all(p.stat().st_mtime_ns == time for p, time in made.items() if p.name != "b.npy")
    shards = []
    for shard in ("0/2", "1/2"):
        place = tmp_path / shard[0]
        assert extracted(films, "--out", place, "--shard", shard).exit_code == 0
        shards.append([str(path.relative_to(place)) for path in place.rglob("*.npy")])
    assert sorted(shards[0] + shards[1]) == sorted(str(p.relative_to(out)) for p in made)
    assert {len(shard) for shard in shards} == {1, 2}
    assert extracted(films, "--out", out, "--fps", "2").exit_code == 0
    assert np.load(out / "a.mp4.npy").shape[0] == 3


def test_bad_videos_are_listed_and_the_good_are_written(tmp_path: Path) -> None:
    good, bad = write_film(tmp_path / "good.mp4", frames=10), tmp_path / "bad.mp4"
    bad.write_text("not a video")
    result = extracted(bad, good, tmp_path / "gone.mp4", "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "bad.mp4: cannot be decoded" in result.stderr
    assert "gone.mp4: no such video" in result.stderr
    assert [path.name for path in (tmp_path / "out").glob("*.npy")] == ["good.npy"]
    for videos, on_error, code in (
        ([bad, good], "skip", 0), ([bad], "skip", 1), ([bad, good], "repeat", 1)
    ):  # fmt: skip
        again = extracted(*videos, "--out", tmp_path / "out", "--on-error", on_error)
        assert again.exit_code == code


def test_two_videos_of_one_name_are_refused(tmp_path: Path) -> None:
    paths = [tmp_path / "x/a.mp4", tmp_path / "y/a.mp4"]
    for path in paths:
        path.parent.mkdir()
        path.touch()
    with pytest.raises(InputError, match="have one name"):
        own_videos(paths)
    assert list(own_videos([tmp_path])) == ["x/a", "y/a"]
    assert own_videos([paths[0], paths[0]]) == {"a": paths[0]}
    (tmp_path / "x/link.mp4").symlink_to(paths[1])
    assert own_videos([tmp_path]) == {"x/a": paths[0], "y/a": paths[1]}
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no videos in this folder"):
        own_videos([tmp_path / "empty"])


def test_plan_counts_what_extract_would_do_and_refuses_a_small_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    film, bad = write_film(tmp_path / "a.mp4"), tmp_path / "bad.mp4"
    bad.write_text("not a video")
    monkeypatch.chdir(tmp_path)  # there is no params.yaml
    result = run("plan", tmp_path, *TINY, "--fps", "2")
    assert result.exit_code == 0, result.output
    assert "plan: left out: " in result.stderr
    for line in ("`pjepa extract`: vjepa2_1_vit_tiny, 4 frames/s", "one A100", "GB to store"):
        assert line in result.output
    assert extracted(film, "--out", tmp_path / "out", "--fps", "2").exit_code == 0
    counted = dict(re.findall(r"(tokens|windows) +([\d,]+)", result.output))
    tokens = len(np.load(tmp_path / "out/a.npy"))
    assert counted == {"tokens": str(tokens), "windows": "2"}  # 5 tokens, 4 to a window
    assert run("plan", bad, *TINY).exit_code == 1
    usage = shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    refused = run("plan", film, *TINY)
    assert (refused.exit_code, "GB free at" in refused.stderr) == (1, True)


def test_plan_without_videos_is_about_the_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "films").mkdir()
    write_film(tmp_path / "films/a.mp4")
    patches = {"backbone": "vjepa2_1_vit_tiny", "crop": 32, "frames_per_window": 8}
    data = {"source": "folder", "folder": {"path": "films", "labels": None}}
    project(tmp_path, monkeypatch, {"data": data, "patches": {**patches, "window_scope": "take"}})
    run_stages(["takes"])
    assert "stage `patches`: vjepa2_1_vit_tiny" in run("plan").output


def test_without_weights_a_setting_that_runs_is_suggested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The options in the message work as they stand."""
    film = write_film(tmp_path / "a.mp4", frames=10)
    monkeypatch.setenv("PJEPA_CACHE", str(tmp_path / "cache"))
    refused = run("extract", film, "--out", tmp_path / "out")
    assert refused.exit_code == 1
    assert "run `pjepa fetch vjepa2_1_vit_large_384`" in refused.stderr
    suggested = refused.stderr.rpartition("on a CPU: ")[2].split()
    done = run("extract", film, "--out", tmp_path / "out", *suggested)
    assert done.exit_code == 0, done.output
