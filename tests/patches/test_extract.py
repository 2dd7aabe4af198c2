"""Extraction: equal bytes for any number of workers, no take encoded twice, no bad file unsaid."""

import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pjepa.core.tables import VideoRow
from pjepa.patches.backbone import backbone_facts
from pjepa.patches.checkpoint import build_encoder
from pjepa.patches.encode import Job, encoded_job, pooled_grid
from pjepa.patches.extract import extract
from pjepa.patches.local import run_local
from pjepa.patches.preprocess import preprocess
from pjepa.patches.store import Notes, note_files, read_notes, read_patches, write_notes
from pjepa.storage.roots import DATA_ROOT
from pjepa.ui.console import InputError
from pjepa.video.files import measured_videos
from pjepa.video.reader import open_video
from tests.patches.patch_infos import features, inline, tiny_config
from tests.storage.flip import flip
from tests.video.corpus import Film
from tests.video.corpus import write_film as write_corpus_film
from tests.video.films import BAD, FPS, write_bad, write_film

CONFIG = tiny_config(batch_windows=2)
LIMITS = {"take0": np.array([[0.0, 0.75], [1.0, 3.0]])}
LENGTHS = [40, 25, 50]


def row(number: int, frames: int) -> VideoRow:
    return VideoRow(f"take{number}", f"{number}.mp4", FPS, frames / FPS, root="data")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[VideoRow]]:
    folder = tmp_path_factory.mktemp("videos")
    for number, frames in enumerate(LENGTHS):
        write_film(folder / f"{number}.mp4", number, frames)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(DATA_ROOT, str(folder))
        yield [row(number, frames) for number, frames in enumerate(LENGTHS)]


@pytest.mark.slow
def test_bytes_do_not_depend_on_the_number_of_workers(rows: list[VideoRow], tmp_path: Path) -> None:
    found = []
    for workers in (1, 2):
        config = CONFIG.model_copy(update={"workers": workers})
        result = extract(rows, LIMITS, config, tmp_path / str(workers), run_local)
        assert result.encoded == 3
        found.append({take: (p.name, p.read_bytes()) for take, p in result.files.items()})
    assert found[0] == found[1]


def test_changed_content_and_moved_boundaries_are_encoded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATA_ROOT, str(tmp_path))
    write_film(tmp_path / "0.mp4", 0)
    store = tmp_path / "store"
    before = extract([row(0, 40)], LIMITS, CONFIG, store, inline)
    stamps = {path: path.stat().st_mtime_ns for path in before.files.values()}
    assert extract([row(0, 40)], LIMITS, CONFIG, store, inline).encoded == 0
    moved = {"take0": LIMITS["take0"] + 0.25}
    assert extract([row(0, 40)], moved, CONFIG, store, inline).encoded == 1
    write_film(tmp_path / "0.mp4", 1)
    after = extract([row(0, 40)], LIMITS, CONFIG, store, inline)
    assert after.encoded == 1
    assert before.files != after.files
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps


def test_stored_features_equal_a_plain_forward_pass(rows: list[VideoRow], tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"grid": 0, "window_scope": "take"})
    result = extract(rows[:1], {}, config, tmp_path, inline)
    stored = read_patches(result.files["take0"])
    assert stored.info == replace(result.info, checkpoint="")
    assert stored.patches.shape == (10, 4, 64)  # 2.5 s at 4 tokens a second
    encoder = build_encoder(config.backbone, "random", 0)
    with open_video(rows[0].path) as reader, torch.no_grad():
        times = [np.arange(0, 8), np.arange(8, 16), np.clip(np.arange(16, 24), 0, 19)]
        clips = [preprocess(reader.frames(t / 8.0), 32, "cv2") for t in times]
        plain = encoder(torch.stack(clips)).reshape(12, 4, 64)[:10]
    np.testing.assert_allclose(stored.patches, plain.numpy(), atol=4e-3)


@pytest.mark.parametrize("stride", [1, 2, 4])
@pytest.mark.parametrize("mode", ["block", "trailing"])
@pytest.mark.parametrize("scope", ["take", "segment"])
def test_no_token_depends_on_frames_beyond_its_lookahead(
    tmp_path: Path, mode: str, stride: int, scope: str
) -> None:
    changes = {"window_mode": mode, "window_stride": stride, "window_scope": scope}
    config = CONFIG.model_copy(update=changes)
    ahead = {"block": 4, "trailing": stride}[mode] / 4.0
    limits = LIMITS["take0"]
    plain = features(write_film(tmp_path / "plain.mp4"), config, limits)
    first_differing = []
    for changed in range(4, 40, 6):
        path = write_film(tmp_path / "changed.mp4", changed_from=changed)
        differs = (features(path, config, limits) != plain).any(axis=(1, 2))
        reached = np.arange(len(plain)) / 4.0 + ahead > changed / FPS
        assert not differs[~reached].any()
        assert differs[-1]
        first_differing.append(changed / FPS - differs.argmax() / 4.0)
    if scope == "take":  # and what is said is no more than there is, but for one step
        assert max(first_differing) > ahead - 0.25 - 1e-9


@pytest.mark.parametrize("grid", [1, 2, 3])
def test_grid_pooling(grid: int) -> None:
    patches = torch.randn(3, 16, 5)
    pooled = pooled_grid(patches, rows=4, columns=4, grid=grid)
    assert pooled.shape == (3, grid * grid, 5)
    if grid == 1:
        torch.testing.assert_close(pooled[:, 0], patches.mean(dim=1))
    corner = patches.view(3, 4, 4, 5)[:, : -(-4 // grid), : -(-4 // grid)].mean(dim=(1, 2))
    torch.testing.assert_close(pooled[:, 0], corner)
    assert torch.equal(pooled_grid(patches, 4, 4, 0), patches)


def test_a_take_shorter_than_a_window_and_a_single_frame_work(tmp_path: Path) -> None:
    for frames, tokens in ((1, 1), (3, 1), (5, 2)):
        path = write_film(tmp_path / "short.mp4", frames=frames)
        for mode in ("block", "trailing"):
            config = CONFIG.model_copy(update={"window_mode": mode})
            assert features(path, config).shape == (tokens, 1, 64)


@pytest.fixture
def bad_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[VideoRow]:
    """One good take, and one of every bad kind."""
    monkeypatch.setenv(DATA_ROOT, str(tmp_path))
    good = write_film(tmp_path / "good.mp4")
    for kind in BAD:
        write_bad(kind, good, tmp_path / f"{kind}.mp4")
    return [VideoRow(k, f"{k}.mp4", FPS, 2.5, root="data") for k in ("good", *BAD)]


def test_bad_videos_are_skipped_with_a_reason_each(
    bad_rows: list[VideoRow], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = CONFIG.model_copy(update={"on_error": "skip", "workers": 2})
    result = extract(bad_rows, {}, config, tmp_path / "store", inline)
    assert list(result.files) == ["good"]
    assert list(result.skipped) == list(BAD)
    for kind, (_, said) in BAD.items():
        reason = result.skipped[kind]
        assert reason.startswith(f"{kind}.mp4: ")
        assert re.search(said, reason), reason
        assert str(tmp_path) not in reason  # goes into an artifact
    lines = capsys.readouterr().err.splitlines()
    assert sum(line.startswith("patches: take ") for line in lines) == len(BAD) - 1
    stored = {path.suffix for path in (tmp_path / "store").iterdir()}
    assert stored == {".safetensors", ".sha256", ".json"}  # nothing half-written
    again = extract(bad_rows, {}, config, tmp_path / "store", inline)
    assert (again.encoded, again.skipped) == (0, result.skipped)


def test_bad_videos_fail_with_a_list_and_what_is_good_stays_encoded(
    bad_rows: list[VideoRow], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    present = [row for row in bad_rows if row.take_id != "missing"]
    with pytest.raises(InputError, match=r"9 of 10 takes cannot .*patches.on_error=skip"):
        extract(present, {}, CONFIG, tmp_path / "store", inline)
    assert capsys.readouterr().err.count("\n  ") == len(BAD) - 1
    assert len(list((tmp_path / "store").glob("*.safetensors"))) == 1
    with pytest.raises(InputError, match=r"1 of 11 takes .* take missing: missing.mp4: no such"):
        extract(bad_rows, {}, CONFIG, tmp_path / "other", inline)
    config = CONFIG.model_copy(update={"on_error": "skip"})
    with pytest.raises(InputError, match="2 of 2 takes cannot be encoded"):  # nothing is left
        extract([bad_rows[2], bad_rows[3]], {}, config, tmp_path / "store", inline)


def test_a_video_shorter_than_its_table_says_is_cut_off(
    rows: list[VideoRow], tmp_path: Path
) -> None:
    longer = [replace(rows[0], duration_s=60.0)]
    with pytest.raises(InputError, match=r"0\.mp4: is cut off, 2\.5 of 60\.0 s are there"):
        extract(longer, {}, CONFIG, tmp_path, inline)
    assert not list(tmp_path.glob("*.safetensors"))


def test_a_full_disk_is_refused_before_anything_starts(
    rows: list[VideoRow], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(InputError, match=r"GB of features to write, 0\.0 GB free"):
        extract(rows, {}, CONFIG, tmp_path, inline)
    assert not list(tmp_path.glob("*.safetensors"))


def test_a_decoder_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_film(tmp_path / "0.mp4")
    never = threading.Event()
    monkeypatch.setattr("pjepa.patches.encode.PATIENCE_S", 0.2)
    monkeypatch.setattr("pjepa.patches.encode.open_take", lambda *a: never.wait())
    job = Job("x", "0.mp4", path, 0.0, None, tmp_path / "x.safetensors")
    outcome = encoded_job(job, CONFIG, backbone_facts(CONFIG), lambda frames: None)
    assert outcome.stuck
    assert outcome.reason is not None
    assert "the decoder hangs" in outcome.reason
    never.set()


def test_a_damaged_file_of_the_store_is_put_aside_and_encoded_again(
    rows: list[VideoRow], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = extract(rows, LIMITS, CONFIG, tmp_path, inline)
    before = {take: file.read_bytes() for take, file in first.files.items()}
    flip(first.files["take0"], -1)
    first.files["take1"].write_bytes(before["take1"][:-100])
    capsys.readouterr()
    again = extract(rows, LIMITS, CONFIG, tmp_path, inline)
    assert again.encoded == 2
    assert {take: file.read_bytes() for take, file in again.files.items()} == before
    said = [line for line in capsys.readouterr().err.splitlines() if "damaged" in line]
    assert len(said) == 2
    assert extract(rows, LIMITS, CONFIG, tmp_path, inline).encoded == 0


def test_a_note_is_made_again_with_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stamps = tuple(k + (500 if k >= 40 else 0) for k in range(72))  # a pause of 20 s
    path = write_corpus_film(Film("pause.mp4", "libx264", stamps=stamps), tmp_path / "videos")
    monkeypatch.setenv(DATA_ROOT, str(path.parent))
    seconds = measured_videos({"t": path}, 1)["t"].duration_s
    pause = [VideoRow("take0", path.name, FPS, seconds, root="data")]
    first = extract(pause, {}, CONFIG, tmp_path / "store", inline)
    assert len(first.notes["take0"].jumps_s) == 1
    flip(note_files(first.files["take0"])[0], 1)
    again = extract(pause, {}, CONFIG, tmp_path / "store", inline)
    assert (again.encoded, again.notes) == (1, first.notes)


def test_notes_of_older_stores_are_read(tmp_path: Path) -> None:
    target = tmp_path / "x.safetensors"
    assert read_notes(target) == Notes()
    target.with_suffix(".repeated.json").write_text('{"frames": 3}')
    target.with_suffix(".cuts.json").write_text("[1.5]")
    assert read_notes(target) == Notes(3, (1.5,))
    write_notes(target, Notes(4, (2.5, 3.5)))
    assert read_notes(target) == Notes(4, (2.5, 3.5))
