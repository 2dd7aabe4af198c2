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
    store_key,
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


def test_file_is_safetensors_and_reads_back(tmp_path: Path) -> None:
    path = write(tmp_path / "a.safetensors")
    stored = read_patches(path)
    assert stored.info == INFO
    np.testing.assert_array_equal(stored.patches, FEATURES)
    with safe_open(path, "np") as official:
        np.testing.assert_array_equal(official.get_tensor("patches"), FEATURES)
    assert path.read_bytes() == write(tmp_path / "b.safetensors").read_bytes()


def test_files_do_not_depend_on_how_the_weights_were_asked_for(tmp_path: Path) -> None:
    named = replace(INFO, checkpoint="other.pt", seed=7)
    with patch_writer(tmp_path / "b.safetensors", named, steps=5) as writer:
        writer.append(FEATURES)
    same = write(tmp_path / "a.safetensors").read_bytes()
    assert (tmp_path / "b.safetensors").read_bytes() == same


def test_unfinished_file_never_appears(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    with pytest.raises(ValueError, match="expected 5 steps"), patch_writer(path, INFO, 5) as writer:
        writer.append(FEATURES[:2])
    assert list(tmp_path.iterdir()) == []


def test_key_covers_every_part() -> None:
    limits = np.array([[0.0, 1.0]])
    keys = {
        store_key("a", {"crop": 64}, limits, "w"),
        store_key("b", {"crop": 64}, limits, "w"),
        store_key("a", {"crop": 32}, limits, "w"),
        store_key("a", {"crop": 64}, limits + 1, "w"),
        store_key("a", {"crop": 64}, None, "w"),
        store_key("a", {"crop": 64}, limits, "v"),
    }
    assert len(keys) == 6
    assert store_key("a", {"x": 1, "y": 2}, None, "w") == store_key(
        "a", {"y": 2, "x": 1}, None, "w"
    )


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
    source = write(tmp_path / "source.safetensors")
    folder = tmp_path / "out"
    folder.mkdir()
    target = link_take(source, folder, take_id)
    assert target.resolve().parent == folder.resolve()
    assert [p.name for p in folder.iterdir()] == [take_file_name(take_id)]
    assert not target.name.startswith(".")


def test_plain_take_id_keeps_its_name_and_is_linked(tmp_path: Path) -> None:
    source = write(tmp_path / "source.safetensors")
    target = link_take(source, tmp_path, "take_001-a.b")
    assert target.name == "take_001-a.b.safetensors"
    assert target.samefile(source)
    with pytest.raises(InputError, match="appears twice"):
        link_take(source, tmp_path, "take_001-a.b")


@pytest.mark.parametrize("take_id", ["", "x" * 300])
def test_impossible_take_ids_are_refused(take_id: str) -> None:
    with pytest.raises(InputError, match="take id"):
        take_file_name(take_id)


def test_missing_and_foreign_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="dvc repro patches"):
        read_patches(tmp_path / "none.safetensors")
    (tmp_path / "text.safetensors").write_text("hello")
    with pytest.raises(InputError, match="not a patch file"):
        read_patches(tmp_path / "text.safetensors")
