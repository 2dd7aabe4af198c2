"""Readers whose errors say what is wrong with a file, and hashes of files."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

import yaml

from pjepa.ui.console import InputError, first_line

if TYPE_CHECKING:
    from torch import Tensor


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
def open_tensors(path: Path) -> Iterator[Any]:
    """Open a safetensors file: its header is read, its tensors when they are asked for."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise InputError(f"{path}: no such file; run the stage that writes it")
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (OSError, SafetensorError) as error:
        reason = f"not a safetensors file ({first_line(error)})"
        raise InputError(
            f"{path}: {reason}; run `dvc checkout` or the stage that writes it"
        ) from None


def read_tensors(path: Path, *names: str) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file by name; raise if it lacks one of these names."""
    with open_tensors(path) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for name in names:
        if name not in tensors:
            raise InputError(f"{path}: has no tensor {name!r}; run the stage that writes it")
    return tensors


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
