"""From a name of the catalogue to files on this machine."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from pjepa.core.roots import DATA_ROOT, data_root, project_root
from pjepa.hub.download import Remote, check_file, downloaded
from pjepa.hub.files import hub_file
from pjepa.hub.places import download_folder, found_file, placing
from pjepa.patches.config import HF, TIMM
from pjepa.tools.fetch.catalogue import CATALOGUE, FEATURES, CatalogueItem
from pjepa.tools.fetch.hub_data import hub_data
from pjepa.ui.errors import InputError
from pjepa.ui.progress import say


def obtained(name: str) -> list[Path]:
    """Return the files of an item, downloaded if missing, and checked."""
    if name.startswith(TIMM):
        return [_timm_file(name)]
    if name.startswith(HF):
        from pjepa.patches.hf.video_models import model_folder, video_shape

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
    close = get_close_matches(name, CATALOGUE, n=1)
    hint = f"did you mean {close[0]}?" if close else "see `pjepa fetch --list`"
    raise InputError(f"{name!r}: nothing of that name to fetch; {hint}")


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

    known = get_pretrained_cfg(name.removeprefix(TIMM), allow_unregistered=True)
    if known is None or not known.hf_hub_id:
        raise InputError(f"{name}: timm knows no weights of that name on the hub")
    return hub_file(known.hf_hub_id, "model.safetensors")


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
