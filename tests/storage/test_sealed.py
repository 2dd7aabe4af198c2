"""Hashes beside files: damage is found before a file is used, and the file before is kept."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from dvc.repo import Repo

from pjepa.storage.sealed import (
    damaged_files,
    intact,
    newest_intact,
    put_aside,
    seal,
    seal_of,
    sealed_file,
)
from tests.storage.flip import flip


def write(path: Path, text: str, keep_before: bool = False) -> None:
    with sealed_file(path, keep_before) as partial:
        partial.write_text(text)


def test_a_flipped_bit_and_a_cut_file_are_found(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("good", "flipped", "cut")]
    for path in paths:
        write(path, "features")
    flip(paths[1])
    paths[2].write_text("feat")
    assert damaged_files(paths, 2) == paths[1:]


def test_the_state_before_is_used_when_the_last_one_is_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "state.pt"
    for text in ("one", "two"):
        write(path, text, keep_before=True)
    assert newest_intact(path) == path
    before = tmp_path / "state.pt.before"
    for again in ("damaged", "damaged once more"):
        flip(path)
        assert newest_intact(path) == before
        assert before.read_text() == "one"
        assert len(capsys.readouterr().err.splitlines()) == 1
        assert (tmp_path / "state.pt.damaged").exists()
        write(path, again, keep_before=True)  # nothing whole is there to be kept


def test_a_kill_between_hash_and_rename_leaves_a_good_file(tmp_path: Path) -> None:
    path = tmp_path / "state.pt"
    write(path, "one")
    seal(path, hashlib.sha256(b"two").hexdigest())
    assert path.read_text() == "one"
    assert intact(path)


def test_a_file_without_a_hash_is_taken_as_it_is_and_an_emptied_hash_is_damage(
    tmp_path: Path,
) -> None:
    path = tmp_path / "old"
    path.write_text("x")
    assert intact(path)
    seal_of(path).write_text("")
    assert not intact(path)


def test_dvc_does_not_bring_back_what_was_put_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    repo = Repo.init(".", no_scm=True)
    repo.cache.local.cache_types = ["hardlink"]
    store, out = Path("store"), Path("out/take")
    out.parent.mkdir()
    for damaged in (True, False):
        write(store, "features")
        os.link(store, out)
        repo.add("out")
        assert out.samefile(store)
        if damaged:  # by the disk: one inode, mode and time as they were
            before = store.stat()
            flip(store)
            store.chmod(before.st_mode)
            os.utime(store, ns=(before.st_atime_ns, before.st_mtime_ns))
            assert not intact(store)
            put_aside(store, "is damaged")
            out.unlink()
    assert out.read_text() == "features"
