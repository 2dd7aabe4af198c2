"""The Git-tracked list of a source's files: what DVC sees of data that stands outside the project.

`data/sources/<name>.json` holds relative path, size and a hash of every file a source may read: of
all of it, or of samples where the file is large and binary. `takes` depends on it: another file,
another size, another hash, and the stage runs again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any, get_args

from pjepa.config.data import DataConfig, SourceName
from pjepa.errors import InputError
from pjepa.paths import source_list
from pjepa.progress import track
from pjepa.roots import inside
from pjepa.takes.annotation_files import SUFFIXES
from pjepa.takes.archive_table import archive_files
from pjepa.takes.videos import VIDEO_SUFFIXES
from pjepa.work import read_json, write_json

SAMPLE = 65_536  # bytes read at the start, the middle and the end of a large file
BINARY = (*VIDEO_SUFFIXES, ".npy", ".mdb", ".pt")  # sampled; all other files are read whole
EVERYTHING = ("**/*",)
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
    """`data` of params with another source; one that does not exist is an error."""
    known = get_args(SourceName)
    if name is not None and name not in known:
        raise InputError(f"source {name!r}: expected one of {', '.join(known)}")
    return config if name is None else config.model_copy(update={"source": name})


def scanned_files(config: DataConfig, root: Path) -> list[str]:
    """Names of the files the source may read, relative to its folder, sorted."""
    if config.path is None:
        return []
    folder = source_folder(config, root)
    patterns = READ.get(config.source, EVERYTHING)
    if config.source == "mstcn":
        patterns = tuple(f"{config.mstcn.dataset}/{pattern}" for pattern in BUNDLE)
    if config.source == "archive":
        patterns = archive_files(config.archive)
    suffixes = (*VIDEO_SUFFIXES, *SUFFIXES) if config.source == "folder" else ("",)
    found = {
        path.relative_to(folder).as_posix()
        for pattern in patterns
        for path in folder.glob(pattern)
        if path.is_file() and path.name.lower().endswith(suffixes)
    }
    if config.groups is not None and inside(folder, config.groups).is_file():
        found.add(PurePosixPath(config.groups).as_posix())
    return sorted(name for name in found if not _hidden(Path(name)))


def source_folder(config: DataConfig, root: Path) -> Path:
    """The folder of a source on this machine; one that is not there is an error."""
    relative = config.path or "."
    folder = root if relative == "." else inside(root, relative, "the data root")
    if not folder.is_dir():
        raise InputError(
            f"{folder}: no such folder; set data.{config.source}.path, and PJEPA_DATA_ROOT or "
            "data_root in local.yaml"
        )
    return folder


def source_here(config: DataConfig, root: Path) -> bool:
    """Whether the source has a folder and it is on this machine."""
    if config.path is None:
        return False
    try:
        source_folder(config, root)
    except InputError:
        return False
    return True


def scan(config: DataConfig, root: Path) -> dict[str, Any]:
    """The list as it is written: sorted and byte-stable, no machine path in it."""
    names = scanned_files(config, root)
    if config.path is not None and not names:
        raise InputError(f"{source_folder(config, root)}: no file that {config.source} reads")
    with ThreadPoolExecutor(config.workers) as pool:
        files = [inside(source_folder(config, root), name) for name in names]
        entries = pool.map(_entry, names, files)
        listed = list(track(entries, f"scan {config.source}", len(names), "file"))
    return {"source": config.source, "files": listed}


def write_scan(config: DataConfig, root: Path) -> Path:
    """Scans the source and writes data/sources/<name>.json."""
    path = source_list(config.source)
    write_json(path, scan(config, root))
    return path


def check_scan(config: DataConfig, root: Path) -> None:
    """Refuses to work from a list that the disk no longer agrees with.

    Names and sizes are compared, and the content of text: a label may change and the size not.
    """
    path = source_list(config.source)
    again = f"run `pjepa data scan {config.source}`"
    if not path.exists():
        raise InputError(f"{path}: no such file; {again}")
    listed = {entry["path"]: entry for entry in read_json(path)["files"]}
    changes = list(_changes(listed, config, root))
    if changes:
        more = f" (and {len(changes) - 1} more)" if len(changes) > 1 else ""
        raise InputError(f"{path}: {changes[0]}{more}; {again}")


def stale_list(config: DataConfig, root: Path) -> str | None:
    """What the disk says against the list; nothing where the data is not on this machine."""
    if not source_list(config.source).exists() or not source_here(config, root):
        return None
    try:
        check_scan(config, root)
    except InputError as error:
        return str(error)
    return None


def _changes(listed: dict[str, dict[str, Any]], config: DataConfig, root: Path) -> Iterator[str]:
    names = scanned_files(config, root)
    for name in names:
        if name not in listed:
            yield f"{name} is new"
            continue
        file, size = inside(source_folder(config, root), name), listed[name]["size"]
        if (found := file.stat().st_size) != size:
            yield f"{name} has {found} bytes, expected {size}"
        elif not _sampled(file) and _hash(file, size) != listed[name]["sample"]:
            yield f"{name} has another content"
    for name in sorted(set(listed) - set(names)):
        yield f"{name} is not there any more"


def _hidden(name: Path) -> bool:
    return any(part.startswith(".") for part in name.parts)


def _entry(name: str, file: Path) -> dict[str, Any]:
    size = file.stat().st_size
    return {"path": name, "size": size, "sample": _hash(file, size)}


def _sampled(file: Path) -> bool:
    """Whether samples stand for the file; of annotations every byte counts."""
    return file.suffix.lower() in BINARY


def _hash(file: Path, size: int) -> str:
    """sha256 of the size and the content, or of three pieces: many GB take no longer than a few."""
    digest = hashlib.sha256(str(size).encode())
    starts: Iterable[int] = range(0, size, SAMPLE)
    if _sampled(file):
        starts = sorted({0, max(0, size // 2 - SAMPLE // 2), max(0, size - SAMPLE)})
    with file.open("rb") as stream:
        for start in starts:
            stream.seek(start)
            digest.update(stream.read(SAMPLE))
    return digest.hexdigest()[:32]
