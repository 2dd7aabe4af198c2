"""Files of the Hugging Face hub, through its own client: its cache, its resume, its progress."""

from __future__ import annotations

import os
from pathlib import Path

from pjepa.storage.roots import DATA_ROOT, data_root
from pjepa.ui.console import InputError, first_line

# Encoders on the Hugging Face hub: upload and download of one folder.

FILES = ("model.safetensors", "config.json", "README.md")


def upload_folder(folder: Path, repo: str, private: bool, token: str | None = None) -> str:
    """Create the repository if missing and upload the encoder's files as one commit."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    api = HfApi(token=token)
    try:
        made = api.create_repo(repo, private=private, exist_ok=True)
        api.upload_folder(
            folder_path=folder,
            repo_id=made.repo_id,
            allow_patterns=list(FILES),
            commit_message="P-JEPA encoder",
        )
    except HFValidationError as error:
        raise InputError(f"{repo}: not a name for the hub ({first_line(error)})") from None
    except (HfHubHTTPError, OSError) as error:
        raise InputError(
            f"{repo}: the hub rejected it ({first_line(error)}); log in with `hf auth login` "
            "and check that you may write there"
        ) from None
    return f"{api.endpoint}/{made.repo_id}"


def downloaded_folder(
    name: str,
    revision: str | None = None,
    cache_dir: str | Path | None = None,
    token: str | None = None,
) -> Path:
    """Return the local copy of a model on the hub; raise a one-line error if that fails."""
    from huggingface_hub import snapshot_download

    try:
        found = snapshot_download(
            name, revision=revision, cache_dir=cache_dir, token=token, allow_patterns=list(FILES)
        )
        return Path(found)
    except Exception as error:
        at = f" at {revision}" if revision else ""
        raise InputError(
            f"{name}{at}: neither a folder with model.safetensors and config.json nor a model that "
            f"can be fetched from the hub ({type(error).__name__})"
        ) from None


# Where downloaded files are kept and looked for, so that params hold no machine path.

CACHE = "PJEPA_CACHE"
CHECKPOINTS = "checkpoints"


def cache_root() -> Path:
    """Return `PJEPA_CACHE`, else `pjepa` in `XDG_CACHE_HOME` or in `~/.cache`."""
    if given := os.environ.get(CACHE):
        return Path(given).expanduser()
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "pjepa"


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
    for name in names:
        for folder in checkpoint_folders():
            path = folder / Path(name).expanduser()
            if path.is_file():
                return path
    return None


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


HUB = "https://huggingface.co"


def hub_file(repository: str, file: str) -> Path:
    """Return the local copy of a model repository's file, downloaded unless the hub's cache has it.

    A file that is not at the top level is searched for in subfolders by its name.
    """
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    try:
        try:
            return Path(hf_hub_download(repository, file))
        except LocalEntryNotFoundError:  # no connection
            raise
        except EntryNotFoundError:
            below = [n for n in HfApi().list_repo_files(repository) if n.endswith(f"/{file}")]
            if len(below) != 1:
                raise
            return Path(hf_hub_download(repository, below[0]))
    except Exception as error:  # the client raises many kinds
        raise InputError(
            f"{Path(file).stem}: not on this machine, and the hub did not answer "
            f"({reason(error)}); download {HUB}/{repository}/resolve/main/{file} and "
            f"{placing(Path(file).name)}"
        ) from None


def reason(error: Exception) -> str:
    kind, first = type(error).__name__, first_line(error)
    return kind if first == kind else f"{kind}: {first}"
