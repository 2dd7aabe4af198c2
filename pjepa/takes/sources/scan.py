"""The Git-tracked list of a source's files, through which DVC tracks data outside the project.

`data/sources/<name>.json` holds relative path, size and a hash of every file a source may read: of
all of it, or of samples where the file is large and binary. `takes` depends on it: another file,
another size, another hash, and the stage runs again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, get_args

from pjepa.storage.reading import read_object
from pjepa.storage.roots import inside
from pjepa.storage.sealed import remembered_hashes
from pjepa.storage.work import work_root
from pjepa.storage.writing import write_json
from pjepa.takes.annotations.files import matters
from pjepa.takes.config import DataConfig, SourceName
from pjepa.takes.source import groups_file, set_folder
from pjepa.takes.sources.archive import archive_files
from pjepa.ui.console import InputError, track
from pjepa.video.files import VIDEO_SUFFIXES

SAMPLE = 65_536  # bytes read at the start, the middle and the end of a large file
BINARY = (*VIDEO_SUFFIXES, ".npy", ".mdb", ".pt")  # sampled; all other files are read whole
REMEMBERED = "scan.json"  # in the work folder: hashes of files that have not changed
BUNDLE = ("features/*.npy", "groundTruth/*.txt", "splits/*.bundle", "mapping.txt")
EGO = "takes/*/frame_aligned_videos"
READ = {  # what each source reads, below its folder; other files do not matter to it
    "egoexo4d": (
        "takes.json", "annotations/keystep_benchmark/*", f"{EGO}/aria*_214-1.mp4",
        f"{EGO}/downscaled/448/aria*_214-1.mp4",
    ),
    "egoprocel": (*BUNDLE, "split1.*", "annotations/**/*.csv"),
    "assembly101": (
        "coarse-annotations/**/*", "db_TSM_features/*/*.mdb", "*/data.mdb",
        "TSM_features/*/*/features.npy", "*/*.mp4", "videos/*/*.mp4", "recordings/*/*.mp4",
    ),
}  # fmt: skip


def named_config(config: DataConfig, name: str | None) -> DataConfig:
    """Return `data` of params with another source; raise an error if there is no such source."""
    known = get_args(SourceName)
    if name is not None and name not in known:
        raise InputError(f"source {name!r}: expected one of {', '.join(known)}")
    return config if name is None else config.model_copy(update={"source": name})


def scanned_files(config: DataConfig, root: Path) -> list[str]:
    """Return names of the files the source may read, relative to its folder, sorted."""
    if config.path is None:
        return []
    folder = source_folder(config, root)
    patterns = READ.get(config.source, ("**/*",))
    if config.source == "mstcn":
        own = (root / set_folder(config.mstcn, root)).relative_to(folder).as_posix()
        patterns = tuple(f"{own}/{pattern}" for pattern in BUNDLE)
    if config.source == "archive":
        patterns = archive_files(config.archive)
    files = {path for pattern in patterns for path in folder.glob(pattern) if path.is_file()}
    if config.source == "folder":
        files = {path for path in files if path.suffix.lower() in VIDEO_SUFFIXES or matters(path)}
    if config.groups is not None and (groups := groups_file(config, root)).is_file():
        files.add(groups)
    names = [path.relative_to(folder) for path in files]
    return sorted(n.as_posix() for n in names if not any(p.startswith(".") for p in n.parts))


def source_folder(config: DataConfig, root: Path) -> Path:
    """Return the folder of a source on this machine; raise an error if it is missing."""
    folder = inside(root, config.path or ".", "the data root")
    if not folder.is_dir():
        raise InputError(
            f"{folder}: no such folder; set data.{config.source}.path, and PJEPA_DATA_ROOT or "
            "data_root in local.yaml"
        )
    return folder


def source_here(config: DataConfig, root: Path) -> bool:
    """Return whether the source has a folder and it is on this machine."""
    return config.path is not None and inside(root, config.path, "the data root").is_dir()


def scan(config: DataConfig, root: Path) -> dict[str, Any]:
    """Return the list as written: sorted, byte-stable and without machine paths."""
    names = scanned_files(config, root)
    if config.path is not None and not names:
        raise InputError(f"{source_folder(config, root)}: no file that {config.source} reads")
    with ThreadPoolExecutor(config.workers) as pool:
        files = [inside(source_folder(config, root), name) for name in names]
        entries = pool.map(_entry, names, files)
        listed = list(track(entries, f"scan {config.source}", len(names), "file"))
    return {"source": config.source, "files": listed}


def write_scan(config: DataConfig, root: Path, path: Path) -> None:
    """Scan the source and write its list."""
    write_json(path, scan(config, root))


def check_scan(config: DataConfig, root: Path, path: Path) -> None:
    """Raise an error if the files on disk no longer match the list.

    Names, sizes and hashes are compared: a label or a whole video may change at equal size.
    """
    again = f"run `pjepa data scan {config.source}`"
    if not path.exists():
        raise InputError(f"{path}: no such file; {again}")
    listed = listed_files(path)
    changes = list(_changes(listed, config, root))
    if changes:
        more = f" (and {len(changes) - 1} more)" if len(changes) > 1 else ""
        raise InputError(f"{path}: {changes[0]}{more}; {again}")


def listed_files(path: Path) -> dict[str, dict[str, Any]]:
    """Return the entries of a list by name; raise an error for anything else in the file."""
    entries = read_object(path, "files")["files"]
    keys = {"path": str, "size": int, "sample": str}
    for entry in entries if isinstance(entries, list) else [entries]:
        if not isinstance(entry, dict) or any(
            not isinstance(entry.get(key), kind) for key, kind in keys.items()
        ):
            raise InputError(f"{path}: not a list of files; run `pjepa data scan`")
    return {entry["path"]: entry for entry in entries}


def stale_list(config: DataConfig, root: Path, path: Path) -> str | None:
    """Return differences between disk and list; None also if the data is not on this machine."""
    try:
        if path.exists() and source_here(config, root):
            check_scan(config, root, path)
    except InputError as error:
        return str(error)
    return None


def _changes(listed: dict[str, dict[str, Any]], config: DataConfig, root: Path) -> Iterator[str]:
    names = scanned_files(config, root)
    files = {name: inside(source_folder(config, root), name) for name in names if name in listed}
    memory, what = work_root() / REMEMBERED, f"check {config.source}"
    samples = remembered_hashes(list(files.values()), memory, _sample, config.workers, what)
    hashes = dict(zip(files, samples, strict=True))
    for name in names:
        if name not in listed:
            yield f"{name} is new"
            continue
        size, sample = listed[name]["size"], listed[name]["sample"]
        if (found := files[name].stat().st_size) != size:
            yield f"{name} has {found} bytes, expected {size}"
        elif hashes[name] != sample:
            yield f"{name} has changed"
    for name in sorted(set(listed) - set(names)):
        yield f"{name} is missing"


def _entry(name: str, file: Path) -> dict[str, Any]:
    return {"path": name, "size": file.stat().st_size, "sample": _sample(file)}


def _sample(file: Path) -> str:
    """Return the sha256 of the size and the content, or of three pieces of a large binary file."""
    size = file.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    starts: Iterable[int] = range(0, size, SAMPLE)
    if file.suffix.lower() in BINARY:  # annotations are hashed whole
        starts = sorted({0, max(0, size // 2 - SAMPLE // 2), max(0, size - SAMPLE)})
    with file.open("rb") as stream:
        for start in starts:
            stream.seek(start)
            digest.update(stream.read(SAMPLE))
    return digest.hexdigest()[:32]
