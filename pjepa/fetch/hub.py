"""Files of the Hugging Face hub, through its own client: its cache, its resume, its progress."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pjepa.errors import InputError
from pjepa.fetch.places import placing

HUB = "https://huggingface.co"


def hub_file(repository: str, file: str) -> Path:
    """The local copy of a model repository's file, downloaded unless the hub's cache has it."""
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download(repository, file))
    except Exception as error:  # the client raises many kinds
        raise InputError(
            f"{Path(file).stem}: not on this machine, and the hub did not answer "
            f"({_reason(error)}); download {HUB}/{repository}/resolve/main/{file} and "
            f"{placing(Path(file).name)}"
        ) from None


def hub_data(repository: str, pattern: str, folder: Path) -> list[Path]:
    """The files of a data-set repository that match, below `folder` under the hub's own paths."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import RepositoryNotFoundError

    options: dict[str, Any] = {"allow_patterns": [pattern], "local_dir": folder}
    place = f"{HUB}/datasets/{repository}"
    try:
        try:
            snapshot_download(repository, repo_type="dataset", **options)
        except RepositoryNotFoundError:  # features may be kept in a model repository
            place = f"{HUB}/{repository}"
            snapshot_download(repository, **options)
    except Exception as error:  # the client raises many kinds
        raise InputError(
            f"{pattern}: the hub did not answer ({_reason(error)}); download it from {place} and "
            f"put it at {folder / pattern.removesuffix('*')}"
        ) from None
    found = sorted(path for path in folder.glob(pattern) if path.is_file())
    if not found:
        raise InputError(f"{pattern}: {place} holds no such file; the release has changed")
    return found


def _reason(error: Exception) -> str:
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__
