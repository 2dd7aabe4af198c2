"""Encoders on the Hugging Face hub: one folder up, one folder down.

`HF_ENDPOINT` names another hub of the same kind (a mirror, one inside a company).
"""

from __future__ import annotations

from pathlib import Path

from pjepa.errors import InputError

FILES = ("model.safetensors", "config.json", "README.md")


def upload_folder(folder: Path, repo: str, private: bool, token: str | None = None) -> str:
    """Makes the repository if it is missing and uploads the encoder's files as one commit."""
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
        raise InputError(f"{repo}: not a name for the hub ({_first_line(error)})") from None
    except (HfHubHTTPError, OSError) as error:
        raise InputError(
            f"{repo}: the hub did not take it ({_first_line(error)}); log in with `hf auth login` "
            "and check that you may write there"
        ) from None
    return f"{api.endpoint}/{made.repo_id}"


def downloaded_folder(name: str) -> Path:
    """The local copy of a model on the hub; whatever is in the way is said in one line."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=list(FILES)))
    except Exception as error:
        raise InputError(
            f"{name}: neither a folder with model.safetensors and config.json nor a model that "
            f"can be fetched from the hub ({type(error).__name__})"
        ) from None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
