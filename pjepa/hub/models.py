"""Encoders on the Hugging Face hub: upload and download of one folder.

`HF_ENDPOINT` names another hub of the same kind (a mirror, one inside a company).
"""

from __future__ import annotations

from pathlib import Path

from pjepa.ui.errors import InputError, first_line

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
