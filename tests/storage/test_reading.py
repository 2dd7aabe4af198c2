"""Files in one step: what is renamed into place was synced, and nothing of a dead run stays."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from pjepa.storage import writing as disk
from pjepa.storage.writing import (
    SYNC,
    atomic_file,
    atomic_folder,
    partial_name,
    remove_partials,
)
from pjepa.ui.console import InputError


def dead_process() -> int:
    """The number of a process that has ended."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    return ended.pid


def test_partial_files_of_dead_processes_are_removed_and_living_ones_stay(tmp_path: Path) -> None:
    own = partial_name(tmp_path / "stream.parquet")
    machine = own.name.split(".")[-2].split("-")[0]
    dead = tmp_path / f".stream.parquet.{machine}-{dead_process()}.partial"
    living = tmp_path / f".stream.parquet.{machine}-{os.getppid()}.partial"
    elsewhere, old = (tmp_path / f".{n}.00000000-1.partial" for n in ("stream.parquet", "a"))
    folder = tmp_path / f".folder.{machine}-{dead_process()}.partial"
    for file in (dead, living, elsewhere, old):
        file.write_text("half")
    os.utime(old, (0, 0))  # of another machine only old ones go
    (folder / "in").mkdir(parents=True)
    with atomic_file(tmp_path / "stream.parquet") as partial:
        partial.write_text("all")
    remove_partials(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"stream.parquet", living.name, elsewhere.name}


def test_what_is_renamed_is_synced_first_file_and_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def synced(handle: int) -> None:
        done.append(f"sync {Path(f'/proc/self/fd/{handle}').readlink().name}")
        fsync(handle)

    def renamed(source: Path, target: Path) -> None:
        done.append(f"rename {Path(target).name}")
        replace(source, target)

    monkeypatch.setenv(SYNC, "1")
    monkeypatch.setattr(disk.os, "fsync", synced)
    monkeypatch.setattr(disk.os, "replace", renamed)
    out = tmp_path / "out"
    with atomic_folder(out) as folder:
        (folder / "a").write_text("a")
    partial = partial_name(out).name
    assert done == ["sync a", f"sync {partial}", "rename out", f"sync {tmp_path.name}"]


def test_a_folder_takes_the_place_of_another(tmp_path: Path) -> None:
    for name in ("first", "second"):
        with atomic_file(tmp_path / "out") as partial:
            partial.mkdir()
            (partial / name).write_text(name)
    assert [p.name for p in tmp_path.rglob("*")] == ["out", "second"]


def test_a_full_disk_names_the_folder_and_what_is_needed(tmp_path: Path) -> None:
    def write() -> None:
        with atomic_file(tmp_path / "out" / "a.bin") as partial:
            partial.write_text("begun")
            Path("/dev/full").write_text("x" * 100_000)

    with pytest.raises(InputError, match=r"out: the disk is full \(.* MB free\): a\.bin needs"):
        write()
    assert list((tmp_path / "out").iterdir()) == []


def test_a_folder_that_may_not_be_written_is_named(tmp_path: Path) -> None:
    error = OSError(errno.EROFS, "Read-only file system", str(tmp_path))
    with (
        pytest.raises(InputError, match=r"a: cannot be written \(Read-only file system\); allow"),
        atomic_file(tmp_path / "a"),
    ):
        raise error
