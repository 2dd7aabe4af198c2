"""Files of the Hugging Face hub, through its own client: its cache, its resume, its progress."""

from __future__ import annotations

from pathlib import Path

from pjepa.hub.places import placing
from pjepa.ui.errors import InputError, first_line

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
