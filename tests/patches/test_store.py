"""The content store: safe names, stable bytes, whole files only."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from pjepa.patches.store import (
    FICLONE,
    link_take,
    patch_writer,
    read_patches,
    reflinked,
    store_path,
    take_file_name,
)
from pjepa.storage.sealed import intact
from pjepa.ui.console import InputError
from tests.patches.patch_infos import patch_info
from tests.storage.flip import flip

INFO = patch_info(window_scope="segment", crop=32, grid=2, rows=2, columns=2, width=3)
FEATURES = np.arange(5 * 4 * 3, dtype=np.float16).reshape(5, 4, 3)


def write(path: Path) -> Path:
    with patch_writer(path, INFO, steps=5) as writer:
        writer.append(FEATURES[:2])
        writer.append(FEATURES[2:])
    return path


def test_file_is_safetensors_and_the_same_however_the_weights_were_asked_for(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "a.safetensors")
    stored = read_patches(path)
    assert stored.info == INFO
    np.testing.assert_array_equal(stored.patches, FEATURES)
    with safe_open(path, "np") as official:
        np.testing.assert_array_equal(official.get_tensor("patches"), FEATURES)
    other = tmp_path / "b.safetensors"
    with patch_writer(other, replace(INFO, checkpoint="other.pt", seed=7), steps=5) as writer:
        writer.append(FEATURES)
    assert other.read_bytes() == path.read_bytes()


def test_unfinished_file_never_appears(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    with pytest.raises(ValueError, match="expected 5 steps"), patch_writer(path, INFO, 5) as writer:
        writer.append(FEATURES[:2])
    assert list(tmp_path.iterdir()) == []


def test_the_name_in_the_store_covers_every_part() -> None:
    limits = np.array([[0.0, 1.0]])
    settings, turned = {"crop": 64, "grid": 1}, {"grid": 1, "crop": 64}
    parts = [
        ("a", settings, limits, "w"),
        ("b", settings, limits, "w"),
        ("a", {**settings, "crop": 32}, limits, "w"),
        ("a", settings, limits + 1, "w"),
        ("a", settings, None, "w"),
        ("a", settings, limits, "v"),
    ]
    assert len({store_path(Path(), *each) for each in parts}) == 6
    assert store_path(Path(), *parts[0]) == store_path(Path(), "a", turned, limits, "w")


def test_without_reflinks_store_and_out_are_one_file_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pjepa.patches.store.reflinked", lambda source, target: False)
    source = write(tmp_path / "a.safetensors")
    target = link_take(source, tmp_path, "x")
    assert target.samefile(source)
    assert source.stat().st_mode & 0o222 == 0


def test_with_reflinks_damage_of_one_does_not_reach_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "a.safetensors")
    if not reflinked(source, tmp_path / "tried"):  # this disk has none: a copy is alike

        def clone(new: int, request: int, old: int) -> None:
            assert request == FICLONE
            os.sendfile(new, old, 0, source.stat().st_size)

        monkeypatch.setattr("pjepa.patches.store.fcntl.ioctl", clone)
    target = link_take(source, tmp_path, "x")
    before = source.read_bytes()
    assert target.read_bytes() == before
    flip(target, -1)
    assert source.read_bytes() == before != target.read_bytes()
    assert intact(source)


def test_a_failed_reflink_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(new: int, request: int, old: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr("pjepa.patches.store.fcntl.ioctl", refused)
    assert not reflinked(write(tmp_path / "a.safetensors"), tmp_path / "x")
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("take_id", ["../../etc/passwd", "a/b", "..", ".hidden", "tab\t", "ü 1"])
def test_take_ids_never_leave_the_folder(tmp_path: Path, take_id: str) -> None:
    source, folder = write(tmp_path / "source.safetensors"), tmp_path / "out"
    folder.mkdir()
    target = link_take(source, folder, take_id)
    assert target.resolve().parent == folder.resolve()
    assert [p.name for p in folder.iterdir()] == [take_file_name(take_id)]
    assert not target.name.startswith(".")


def test_plain_take_ids_keep_their_names_and_impossible_ones_are_refused(tmp_path: Path) -> None:
    source = write(tmp_path / "source.safetensors")
    target = link_take(source, tmp_path, "take_001-a.b")
    assert target.name == "take_001-a.b.safetensors"
    assert target.read_bytes() == source.read_bytes()
    for take_id, reason in (("take_001-a.b", "appears twice"), ("", "take id"), ("x" * 300, "id")):
        with pytest.raises(InputError, match=reason):
            link_take(source, tmp_path, take_id)


def test_missing_and_foreign_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="dvc repro patches"):
        read_patches(tmp_path / "none.safetensors")
    (tmp_path / "text.safetensors").write_text("hello")
    with pytest.raises(InputError, match="not a patch file"):
        read_patches(tmp_path / "text.safetensors")
