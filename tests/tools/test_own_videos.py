"""`pjepa extract` and `pjepa plan`: files, sidecars, names, resume, bad videos."""

import json
import re
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

SETTINGS = ["--backbone", "vjepa2_1_vit_tiny", "--checkpoint", "random", "--crop", "32"]
SETTINGS += ["--frames-per-window", "8"]


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
    found = np.array(read_patches(target).patches)
    target.unlink()
    return found


def test_one_video_becomes_one_token_per_step_with_a_sidecar(tmp_path: Path) -> None:
    film, out = write_film(tmp_path / "a film.mp4"), tmp_path / "out"
    result = extracted(film, "--out", out)
    assert result.exit_code == 0, result.output
    tokens = np.load(out / "a film.npy")
    assert (tokens.shape, tokens.dtype) == ((10, 64), np.float32)  # 2.5 s at 4 tokens a second
    np.testing.assert_array_equal(tokens, expected(film)[:, 0].astype(np.float32))
    told = json.loads((out / "a film.npy.json").read_text())
    assert (told["fps"], told["tokens"], told["axes"]) == (4.0, 10, "time, feature")
    assert told["checkpoint_id"] == "random-vjepa2_1_vit_tiny-0"
    assert told["time_s"] == [k / 4 for k in range(10)]
    assert told["lookahead_s"] == 1.0  # 8 frames at 8 frames a second
    assert told["extraction"]["frames_per_window"] == 8
    assert not list((out / ".pjepa").glob("*.safetensors"))  # nothing is kept twice


def test_every_format_holds_the_same_numbers(tmp_path: Path) -> None:
    film = write_film(tmp_path / "a.mp4", frames=20)
    mean = expected(film)[:, 0]
    for form in ("npy-dt", "safetensors", "parquet"):
        out = tmp_path / form
        assert extracted(film, "--out", out, "--format", form, "--dtype", "float16").exit_code == 0
    assert np.load(tmp_path / "npy-dt/a.npy").shape == (64, 5)
    np.testing.assert_array_equal(np.load(tmp_path / "npy-dt/a.npy").T, mean)
    tensors = load_file(tmp_path / "safetensors/a.safetensors")
    np.testing.assert_array_equal(tensors["features"], mean)
    np.testing.assert_array_equal(tensors["time_s"], np.arange(5) / 4)
    stream = read_stream(tmp_path / "parquet/a.parquet")
    assert stream.info.provenance.lookahead_s == 1.0
    np.testing.assert_array_equal(stream.read("a").features, mean.astype(np.float32))


def test_patches_without_pooling(tmp_path: Path) -> None:
    film = write_film(tmp_path / "a.mp4", frames=20)
    assert extracted(film, "--out", tmp_path / "o", "--pool", "none").exit_code == 0
    np.testing.assert_array_equal(np.load(tmp_path / "o/a.npy"), expected(film, 0))
    refused = extracted(film, "--out", tmp_path / "p", "--pool", "none", "--format", "parquet")
    assert refused.exit_code == 1
    assert "one token per row" in refused.stderr


def test_options_without_effect_are_refused(tmp_path: Path) -> None:
    film = write_film(tmp_path / "a.mp4", frames=10)
    for options, said in (
        (["--grid", 2], "--grid needs --pool none"),
        (["--window-stride", 2], "--window-stride needs --window-mode trailing"),
        (["--segments", "fixed"], "--segments needs --model"),
    ):
        refused = extracted(film, "--out", tmp_path / "o", *options)
        assert (refused.exit_code, said in refused.stderr) == (1, True)
    project = run("extract", "--backbone", "vjepa2_1_vit_tiny")
    assert "--backbone is for videos that are named" in project.stderr
    assert not (tmp_path / "o").exists()


def test_a_folder_is_mirrored_resumed_and_redone_when_settings_change(tmp_path: Path) -> None:
    films, out = tmp_path / "films", tmp_path / "out"
    (films / "day 1").mkdir(parents=True)
    write_film(films / "a.mp4", 0, 20)
    write_film(films / "a.mkv", 1, 20)
    write_film(films / "day 1/b.mp4", 2, 20)
    (films / "notes.txt").write_text("not a video")
    assert extracted(films, "--out", out).exit_code == 0
    made = {path: path.stat().st_mtime_ns for path in out.rglob("*.npy")}
    assert {str(p.relative_to(out)) for p in made} == {"a.mp4.npy", "a.mkv.npy", "day 1/b.npy"}
    (out / "day 1/b.npy").unlink()
    again = extracted(films, "--out", out)
    assert "2 of 3 videos are done already" in again.stderr
    assert (out / "day 1/b.npy").exists()
    untouched = [p for p in made if p.name != "b.npy"]
    assert all(p.stat().st_mtime_ns == made[p] for p in untouched)
    assert extracted(films, "--out", out, "--fps", "2").exit_code == 0
    assert np.load(out / "a.mp4.npy").shape[0] == 3


def test_shards_share_the_videos(tmp_path: Path) -> None:
    for number in range(3):
        write_film(tmp_path / f"films/{number}.mp4" if number else _made(tmp_path), number, 10)
    for shard, names in (("0/2", {"0", "2"}), ("1/2", {"1"})):
        out = tmp_path / shard.replace("/", "-")
        assert extracted(tmp_path / "films", "--out", out, "--shard", shard).exit_code == 0
        assert {path.stem for path in out.glob("*.npy")} == names
    for wrong in ("2/2", "x", "1"):
        assert extracted(tmp_path / "films", "--shard", wrong).exit_code == 1


def _made(folder: Path) -> Path:
    (folder / "films").mkdir()
    return folder / "films/0.mp4"


def test_bad_videos_are_listed_and_the_good_are_written(tmp_path: Path) -> None:
    good, bad = write_film(tmp_path / "good.mp4", frames=10), tmp_path / "bad.mp4"
    bad.write_text("not a video")
    gone = tmp_path / "gone.mp4"
    result = extracted(bad, good, gone, "--out", tmp_path / "out")
    assert result.exit_code == 1
    assert "bad.mp4: cannot be decoded" in result.stderr
    assert "gone.mp4: no such video" in result.stderr
    assert (tmp_path / "out/good.npy").exists()
    assert not (tmp_path / "out/bad.npy").exists()
    assert extracted(bad, good, "--out", tmp_path / "out", "--on-error", "skip").exit_code == 0
    assert extracted(bad, "--out", tmp_path / "out", "--on-error", "skip").exit_code == 1
    assert extracted(bad, good, "--out", tmp_path / "out", "--on-error", "repeat").exit_code == 1


def test_two_videos_of_one_name_are_refused(tmp_path: Path) -> None:
    paths = [tmp_path / "x/a.mp4", tmp_path / "y/a.mp4"]
    for path in paths:
        path.parent.mkdir()
        path.touch()
    with pytest.raises(InputError, match="have one name"):
        own_videos(paths)
    assert list(own_videos([tmp_path])) == ["x/a", "y/a"]
    assert len(own_videos([paths[0], paths[0]])) == 1
    (tmp_path / "x/link.mp4").symlink_to(paths[1])
    assert list(own_videos([tmp_path])) == ["x/a", "y/a"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no videos in this folder"):
        own_videos([tmp_path / "empty"])


def test_a_name_never_leaves_the_folder(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    film = write_film(tmp_path / "a.mp4", frames=10)
    assert extracted(tmp_path / "in" / ".." / "a.mp4", "--out", tmp_path / "out").exit_code == 0
    assert (tmp_path / "out/a.npy").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.mp4", "in", "out"]
    assert film.exists()


def test_plan_counts_what_extract_would_do_and_refuses_a_small_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import shutil

    film = write_film(tmp_path / "a.mp4")
    monkeypatch.chdir(tmp_path)  # there is no params.yaml
    bad = tmp_path / "bad.mp4"
    bad.write_text("not a video")
    options = [word for word in SETTINGS if word not in ("--checkpoint", "random")]
    result = run("plan", tmp_path, *options, "--fps", "2")
    assert result.exit_code == 0, result.output
    assert "plan: left out: " in result.stderr
    assert "`pjepa extract`: vjepa2_1_vit_tiny, 4 frames/s" in result.output
    assert extracted(film, "--out", tmp_path / "out", "--fps", "2").exit_code == 0
    tokens = len(np.load(tmp_path / "out/a.npy"))
    counted = dict(re.findall(r"(tokens|windows) +([\d,]+)", result.output))
    assert counted == {"tokens": str(tokens), "windows": "2"}  # 5 tokens, 4 to a window
    for part in ("hours of one A100", "GB to store"):
        assert part in result.output
    assert run("plan", bad, *options).exit_code == 1
    usage = shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    refused = run("plan", film, *options)
    assert refused.exit_code == 1
    assert "GB free at" in refused.stderr


def test_plan_without_videos_is_about_the_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "films").mkdir()
    write_film(tmp_path / "films/a.mp4")
    patches = {"backbone": "vjepa2_1_vit_tiny", "crop": 32, "frames_per_window": 8}
    data = {"source": "folder", "folder": {"path": "films", "labels": None}}
    project(tmp_path, monkeypatch, {"data": data, "patches": {**patches, "window_scope": "take"}})
    run_stages(["takes"])
    shown = run("plan")
    assert "stage `patches`: vjepa2_1_vit_tiny" in shown.output
    refused = run("plan", "--backbone", "vjepa2_1_vit_base_384")
    assert refused.exit_code == 1
    assert "plan: --backbone is for videos that are named" in refused.stderr


def test_errors_speak_of_options(tmp_path: Path) -> None:
    """There is no params.yaml for videos that are named: `patches.grid` is --grid here."""
    film = write_film(tmp_path / "a.mp4")
    settings = ["--out", tmp_path / "o", "--checkpoint", "random"]
    for options, told in {
        ("--crop", "30"): "error: crop 30 is not a multiple",
        ("--precision", "fp8"): "error: --precision = 'fp8': Input should be",
        ("--backbone", "vjepa3"): "error: --backbone: 'vjepa3' is not one of",
        ("--backbone", "timm:resnet9000"): "error: --backbone: timm has no model 'resnet9000'",
    }.items():
        refused = run("extract", film, *settings, *options)
        assert refused.exit_code == 1
        assert told in refused.output
        assert "patches." not in refused.output


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
    assert (tmp_path / "out/a.npy").exists()
