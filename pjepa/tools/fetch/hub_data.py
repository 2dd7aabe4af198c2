"""Feature archives of the Hugging Face hub: many large files below the data root, each checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pjepa.hub.download import Remote, check_file
from pjepa.hub.files import HUB, reason
from pjepa.ui.errors import InputError


def hub_data(repository: str, pattern: str, folder: Path) -> list[Path]:
    """Return the matching files of a data-set repository, below `folder` as on the hub.

    The hub knows the sha256 of its large files: what came is held against it.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import RepositoryNotFoundError

    options: dict[str, Any] = {"allow_patterns": [pattern], "local_dir": folder}
    place, kind = f"{HUB}/datasets/{repository}", "dataset"
    try:
        try:
            snapshot_download(repository, repo_type=kind, **options)
        except RepositoryNotFoundError:  # features may be kept in a model repository
            place, kind = f"{HUB}/{repository}", "model"
            snapshot_download(repository, repo_type=kind, **options)
        known = _checksums(repository, kind)
    except Exception as error:  # the client raises many kinds
        raise InputError(
            f"{pattern}: the hub did not answer ({reason(error)}); download it from {place} and "
            f"put it at {folder / pattern.removesuffix('*')}"
        ) from None
    below = f"{pattern.removesuffix('*')}**/*" if pattern.endswith("/*") else pattern
    found = sorted(path for path in folder.glob(below) if path.is_file())
    if not found:
        raise InputError(f"{pattern}: {place} holds no such file; the release has changed")
    for path in found:
        check_file(path, Remote(place, sha256=known.get(path.relative_to(folder).as_posix())))
    return found


def _checksums(repository: str, kind: str) -> dict[str, str]:
    """Return sha256 by name of the files that the hub stores as large ones."""
    from huggingface_hub import HfApi

    api = HfApi()
    info = api.dataset_info if kind == "dataset" else api.model_info
    files = info(repository, files_metadata=True).siblings or []
    return {file.rfilename: file.lfs.sha256 for file in files if file.lfs}
