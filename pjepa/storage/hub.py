"""Files of the Hugging Face hub, through its own client: its cache, its resume, its progress.

And the folders where weights are looked for, so that params hold no machine path.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pjepa.storage.roots import DATA_ROOT, data_root
from pjepa.ui.console import InputError, first_line

HUB = "https://huggingface.co"
CACHE = "PJEPA_CACHE"
CHECKPOINTS = "checkpoints"
FILES = ["model.safetensors", "config.json", "README.md"]  # of an encoder


@contextmanager
def hub_errors(problem: str, hint: str) -> Iterator[None]:
    """Turn whatever the hub's client raises, which has many kinds, into one line."""
    try:
        yield
    except Exception as error:
        kind, first = type(error).__name__, first_line(error)
        reason = kind if first == kind else f"{kind}: {first}"
        raise InputError(f"{problem} ({reason}); {hint}") from None


def upload_folder(folder: Path, repo: str, private: bool, token: str | None = None) -> str:
    """Create the repository if missing and upload the encoder's files as one commit."""
    from huggingface_hub import HfApi

    api = HfApi(token=token)
    hint = "check the name, log in with `hf auth login` and check that you may write there"
    with hub_errors(f"{repo}: the hub rejected it", hint):
        created = api.create_repo(repo, private=private, exist_ok=True)
        api.upload_folder(
            folder_path=folder,
            repo_id=created.repo_id,
            allow_patterns=FILES,
            commit_message="P-JEPA encoder",
        )
    return f"{api.endpoint}/{created.repo_id}"


def downloaded_folder(
    name: str,
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    token: str | None = None,
) -> Path:
    """Return the local copy of an encoder on the hub."""
    from huggingface_hub import snapshot_download

    at = f" at {revision}" if revision else ""
    problem = f"{name}{at}: neither a folder with model.safetensors and config.json nor a model"
    with hub_errors(f"{problem} that can be fetched from the hub", "check the name"):
        folder = snapshot_download(
            name, revision=revision, cache_dir=cache_dir, token=token, allow_patterns=FILES
        )
        return Path(folder)


def hub_file(repository: str, file: str) -> Path:
    """Return the local copy of a model repository's file, downloaded unless the hub's cache has it.

    A file that is not at the top level is searched for in subfolders by its name.
    """
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    problem = f"{Path(file).stem}: not on this machine, and the hub did not answer"
    hint = f"download {HUB}/{repository}/resolve/main/{file} and {placing(Path(file).name)}"
    with hub_errors(problem, hint):
        try:
            return Path(hf_hub_download(repository, file))
        except EntryNotFoundError as error:
            if isinstance(error, LocalEntryNotFoundError):  # no connection
                raise
            below = [n for n in HfApi().list_repo_files(repository) if n.endswith(f"/{file}")]
            if len(below) != 1:
                raise
            return Path(hf_hub_download(repository, below[0]))


# Folders in which the file of a checkpoint is looked for.


def cache_root() -> Path:
    """Return `PJEPA_CACHE`, else `pjepa` in `XDG_CACHE_HOME` or in `~/.cache`."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "pjepa"
    return Path(os.environ.get(CACHE) or usual).expanduser()


def download_folder() -> Path:
    """Return the folder for downloaded weights."""
    return cache_root() / CHECKPOINTS


def checkpoint_folders() -> list[Path]:
    """Return every folder in which a file's bare name is looked for, first choice first."""
    from torch.hub import get_dir

    hub = Path(get_dir()) / CHECKPOINTS  # torch reads TORCH_HOME itself
    return [Path(), data_root(), data_root() / CHECKPOINTS, download_folder(), hub]


def found_file(*names: str) -> Path | None:
    """Return the first name that is a file in one of the folders; full paths are used as is."""
    paths = (folder / Path(name).expanduser() for name in names for folder in checkpoint_folders())
    return next((path for path in paths if path.is_file()), None)


def checkpoint_file(name: str) -> Path:
    """Return the file of a name; raise an error that says where to put a missing one."""
    if path := found_file(name):
        return path
    raise InputError(
        f"patches.checkpoint: no file {name}; {placing(Path(name).name)} (docs/backbones.md)"
    )


def placing(file: str) -> str:
    """Return a hint on where to put a file so that it is found."""
    root = os.environ.get(DATA_ROOT) or f"${DATA_ROOT}"
    return f"put it at {download_folder() / file} or {root}/{CHECKPOINTS}/{file}"
