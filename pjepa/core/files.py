"""Atomic files and folders, their hashes, and readers whose errors say what is wrong."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import yaml

from pjepa.core.disk import (
    PARTIAL,
    named_disk_errors,
    partial_name,
    remove,
    remove_partials,
    sync,
    sync_all,
)
from pjepa.ui.errors import InputError, first_line


def fingerprint(*parts: Any) -> str:
    """Return a short hash of JSON-able values, the same in every process."""
    text = json.dumps(parts, sort_keys=True, default=str, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def file_sha256(path: Path) -> str:
    """Return the content hash of a file, read in bounded chunks."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_sha256(path: Path) -> str:
    """Return the content hash of a file, or of a folder's names and files."""
    if not path.is_dir():
        return file_sha256(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return fingerprint([(file.relative_to(path).as_posix(), file_sha256(file)) for file in files])


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary name beside `path` and rename it when the block succeeds."""
    with atomic_path(path) as partial:
        yield partial


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path` and put it in place when the block succeeds."""
    with atomic_path(path) as partial:
        partial.mkdir()
        yield partial


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Write as `atomic_file` does, in a block that makes a file or folder of the temporary name."""
    partial = partial_name(path)
    try:
        with named_disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            remove_partials(path.parent)
            remove(partial)
            yield partial
            _put_in_place(partial, path)
    finally:
        with suppress(OSError):  # what went wrong before is what matters
            remove(partial)


def _put_in_place(partial: Path, path: Path) -> None:
    """Rename the finished file; it is synced first, so a power loss leaves old or new."""
    inside = any(parent.name.endswith(PARTIAL) for parent in path.parents)
    if not inside:  # else it is synced with the folder it is in
        sync_all(partial)
    either_is_a_folder = path.is_dir() or (path.exists() and partial.is_dir())
    if either_is_a_folder and not path.is_symlink():  # only a file can be renamed onto a file
        before = partial_name(path.with_name(f"{path.name}.before"))
        os.replace(path, before)
        os.replace(partial, path)
        remove(before)
    else:
        os.replace(partial, path)
    if not inside:
        sync(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Write byte-stable JSON: sorted keys, two spaces, a final newline."""
    with atomic_file(path) as partial:
        text = json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n"
        partial.write_text(text, encoding="utf-8")


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; raise if it is missing or broken."""
    with _readable(path, "JSON", "run the stage that writes it"):
        return json.loads(path.read_text(encoding="utf-8"))


def read_object(path: Path, *keys: str) -> dict[str, Any]:
    """Return a JSON object; raise if it lacks one of these keys."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise InputError(f"{path}: expected a JSON object, found {type(value).__name__}")
    for key in keys:
        if key not in value:
            raise InputError(f"{path}: has no {key!r}; run the stage that writes it")
    return value


def read_yaml(path: Path, loader: type[yaml.SafeLoader] = yaml.SafeLoader) -> Any:
    """Return the content of a YAML file; raise if it is missing or broken."""
    with _readable(path, "YAML", "run inside the project folder"):
        return yaml.load(path.read_text(encoding="utf-8"), Loader=loader)


def read_torch(path: Path) -> dict[str, Any]:
    """Return the dict of a torch file, memory-mapped where it can be; no code in it is run."""
    import torch

    mapped = zipfile.is_zipfile(path)  # files of torch before 1.6 are not, and are read whole
    try:
        content = torch.load(path, map_location="cpu", mmap=mapped, weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, KeyError, UnpicklingError) as error:
        other = "it holds more than tensors, numbers and names, or is damaged"
        reason = other if isinstance(error, UnpicklingError) else first_line(error)
        raise InputError(f"{path}: not a torch file that loads safely ({reason})") from None
    if not isinstance(content, dict):
        raise InputError(f"{path}: holds a {type(content).__name__}, expected a dict")
    return content


@contextmanager
def _readable(path: Path, kind: str, hint: str) -> Iterator[None]:
    """Turn whatever is wrong with a text file into a one-line error."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{path}: no such file; {hint}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except RecursionError:
        raise InputError(f"{path}: nested too deeply to be {kind} of this project") from None
    except (ValueError, yaml.YAMLError) as error:
        raise InputError(f"{path}: not {kind} ({' '.join(str(error).split())})") from None
