"""From a name of the catalogue to files on this machine."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import torch

from pjepa.core.text import did_you_mean
from pjepa.patches.checkpoint import (
    encoder_state,
    named_variant,
    read_checkpoint,
    tensors_id,
    weights_file,
    write_port,
)
from pjepa.patches.config import HF, TIMM
from pjepa.storage.download import Remote, check_file, downloaded, sha256_shown
from pjepa.storage.hub import HUB, download_folder, found_file, hub_errors, hub_file, placing
from pjepa.storage.roots import DATA_ROOT, data_root, project_root
from pjepa.tools.catalogue import CATALOGUE, FEATURES, CatalogueItem
from pjepa.ui.console import InputError, say

# Feature archives of the Hugging Face hub: many large files below the data root, each checked.


def hub_data(repository: str, pattern: str, folder: Path) -> list[Path]:
    """Return the matching files of a data-set repository, below `folder` as on the hub.

    The hub knows the sha256 of its large files: what came is held against it.
    """
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import RepositoryNotFoundError

    url, kind = f"{HUB}/datasets/{repository}", "dataset"
    hint = f"download it from {url} and put it at {folder / pattern.removesuffix('*')}"
    with hub_errors(f"{pattern}: the hub did not answer", hint):
        try:
            listed = HfApi().dataset_info(repository, files_metadata=True).siblings
        except RepositoryNotFoundError:  # features may be kept in a model repository
            url, kind = f"{HUB}/{repository}", "model"
            listed = HfApi().model_info(repository, files_metadata=True).siblings
        snapshot_download(repository, repo_type=kind, allow_patterns=pattern, local_dir=folder)
    files = [file for file in listed or [] if fnmatch(file.rfilename, pattern)]
    if not files:
        raise InputError(f"{pattern}: {url} holds no such file; the release has changed")
    for file in files:
        digest = file.lfs.sha256 if file.lfs else None
        check_file(folder / file.rfilename, Remote(url, sha256=digest))
    return sorted(folder / file.rfilename for file in files)


def obtained(name: str) -> list[Path]:
    """Return the files of an item, downloaded if missing, and checked."""
    if name.startswith(TIMM):
        return [_timm_file(name)]
    if name.startswith(HF):
        from pjepa.patches.hf import model_folder, video_shape

        video_shape(name.removeprefix(HF))  # refuses a kind that could not be used
        return [model_folder(name.removeprefix(HF), weights=True)]
    item = known_item(name)
    if item.kind == "archive":
        return _archive_files(item)
    if not item.files:
        raise InputError(f"{name}: cannot be downloaded automatically: {item.by_hand}")
    return [_single_file(name, item)]


def known_item(name: str) -> CatalogueItem:
    """Return the item of that name."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    hint = did_you_mean(name, CATALOGUE, "; see `pjepa fetch --list`")
    raise InputError(f"{name!r}: nothing of that name to fetch{hint}")


def local_files(item: CatalogueItem) -> list[Path]:
    """Return the files of an item that are on this machine; nothing is downloaded or checked."""
    if item.kind == "archive":
        return [f for pattern in item.files for f in sorted(archive_folder().glob(pattern))]
    return [path for file in item.files if (path := found_file(file))]


def archive_folder() -> Path:
    """Return where feature archives go, under the hub's own paths."""
    return data_root() / FEATURES.split("/")[1]


def _single_file(name: str, item: CatalogueItem) -> Path:
    """Return a local or downloaded file; either way it must be the released one."""
    file = item.files[0]
    remote = Remote(item.url, item.bytes, item.sha256)
    if here := found_file(file):
        check_file(here, remote)
        say(f"{name}: already here")
        return here
    if item.hub:
        path = hub_file(item.hub, file)
        check_file(path, remote)
        return path
    if item.by_hand:
        raise InputError(
            f"{name}: cannot be downloaded automatically: {item.by_hand} and {placing(file)}"
        )
    try:
        return downloaded(remote, download_folder() / file)
    except InputError as error:
        raise InputError(f"{error}; or download {item.url} and {placing(file)}") from None


def _timm_file(name: str) -> Path:
    """Return timm's weights of that name in the hub's cache, where timm looks for them."""
    from timm import get_pretrained_cfg

    config = get_pretrained_cfg(name.removeprefix(TIMM), allow_unregistered=True)
    if config is None or not config.hf_hub_id:
        raise InputError(f"{name}: timm knows no weights of that name on the hub")
    return hub_file(config.hf_hub_id, "model.safetensors")


def _archive_files(item: CatalogueItem) -> list[Path]:
    """Return the files of a feature archive, below the data root."""
    if data_root().resolve() == project_root().resolve():
        raise InputError(
            f"{item.what}: {item.gigabytes} GB need space; set {DATA_ROOT} (or data_root in "
            "local.yaml) to a folder outside the project"
        )
    return [
        path for pattern in item.files for path in hub_data(item.hub, pattern, archive_folder())
    ]


# `pjepa convert`: the encoder of an official checkpoint as a file of its own.


def converted_encoder(checkpoint: str, variant_name: str, out: Path | None) -> str:
    """Write the encoder with metadata that names the variant, read it back, and say what it is."""
    source = weights_file(variant_name, checkpoint)
    target = out or download_folder() / f"{variant_name}.safetensors"
    if target.suffix != ".safetensors":
        raise InputError(f"{target}: a port is a .safetensors file; give --out such a name")
    if target.exists() and target.samefile(source):
        raise InputError(f"{source}: is such a port already; give the official .pt")
    state = encoder_state(variant_name, source)
    variant = named_variant(variant_name)
    identity = tensors_id(state)
    metadata = {
        "variant": variant_name,
        "heads": variant.heads,
        "levels": list(variant.levels),
        "source": source.name,
        "source_sha256": sha256_shown(source),
        "weights_id": identity,
    }
    write_port(target, state, metadata)
    written = read_checkpoint(target)
    if any(not torch.equal(written[name], state[name]) for name in state):
        target.unlink()
        raise InputError(f"{target}: does not read back as it was written; check the disk")
    sizes = [path.stat().st_size / 1e9 for path in (target, source)]
    return f"{target}: {sizes[0]:.2f} GB of {sizes[1]:.2f} GB\nweights id {identity}"
