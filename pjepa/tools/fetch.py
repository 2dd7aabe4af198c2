"""`pjepa fetch`: weights, encoders, heads and feature archives, and where the rest is.

Nothing here could be downloaded when it was written. Names, sizes and checksums are those that the
releases publish; an address that is not part of a release says so (`UNCHECKED`).
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

from pjepa.core.text import did_you_mean
from pjepa.model.release import HUB as ENCODERS
from pjepa.model.release import RELEASED
from pjepa.patches.config import HF, TIMM
from pjepa.patches.vjepa21 import VARIANTS
from pjepa.storage.download import Remote, check_file, downloaded
from pjepa.storage.hub import HUB, download_folder, found_file, hub_errors, hub_file, placing
from pjepa.storage.roots import DATA_ROOT, data_root, project_root
from pjepa.ui.console import InputError, say

FEATURES = "FelTris/pjepa_features"  # also the folder below the data root that archives go to
UNCHECKED = "(address not checked)"
CODE = f"https://github.com/FelTris/pjepa {UNCHECKED}"

ItemKind = Literal["backbone", "encoder", "head", "archive", "data set"]


@dataclass(frozen=True)
class CatalogueItem:
    """One item of the catalogue: it comes from its `url` or from the `hub`, or `by_hand` says how
    to get it.

    `files` are names, or patterns of the hub's client, below the place it comes from.
    """

    kind: ItemKind
    what: str
    files: tuple[str, ...] = ()
    url: str = ""
    hub: str = ""
    bytes: int | None = None
    about_gb: float | None = None  # where the exact size is not known
    sha256: str | None = None
    by_hand: str = ""
    terms: str = ""  # under which it may be used; empty: those of its authors, see there

    @property
    def gigabytes(self) -> float | None:
        return self.bytes / 1e9 if self.bytes else self.about_gb


def _backbones() -> dict[str, CatalogueItem]:
    about = {"vjepa2_1_vit_giant_384": 16.9, "vjepa2_1_vit_gigantic_384": 30.2}
    return {
        name: CatalogueItem(
            "backbone",
            f"V-JEPA 2.1, width {v.width}, {v.depth} layers",
            (v.file,),
            v.url,
            bytes=v.bytes,
            about_gb=about.get(name),
            sha256=v.sha256,
            terms="MIT (of its code)",
        )
        for name, v in VARIANTS.items()
        if v.file is not None
    }


def _encoders() -> dict[str, CatalogueItem]:
    return {
        name: CatalogueItem(
            "encoder",
            f"released P-JEPA, {r.architecture.d_in} -> {r.architecture.d_model}, "
            f"{r.architecture.student_encoder_attention}",
            (f"{name}.pt",),
            hub=ENCODERS,
            bytes=r.bytes,
            sha256=r.sha256,
            terms="MIT",
        )
        for name, r in RELEASED.items()
    }


HEAD_FILES = {  # what it is, and its sha256
    "cholec80_raw_linear": (
        "linear head, raw PL-Stitch 768 -> 7 phases",
        "fd46531306a102deae7822f7235cfb1396a9080b0f20a4012dd6218d3e56864f",
    ),
    "cholec80_student_linear": (
        "linear head, lemon_plstitch_block32 768 -> 7 phases",
        "af57991915dd08ad0cd1f041ed67f19db911e9ff3e4c9153f817c5ca89448c2e",
    ),
    "m2cai16_raw_linear": (
        "linear head, raw PL-Stitch 768 -> 8 phases",
        "9ef42414cddba72f0575e742168771d5e4aad911c0cb9aa06bab9c725fa60abf",
    ),
    "m2cai16_student_linear": (
        "linear head, lemon_plstitch_block32 768 -> 8 phases",
        "798d3946f4dff4147892ba8d6ad407166b6d95a9445880139b5036fee76c0662",
    ),
    "assembly101_oracle_clip_ltcausal_linear": (
        "linear head, assembly101_tsm_clip -> 202",
        "9fe519e357837b271f93225e0ea202b905cf911f1ee7824fbbba13bff0c4abe7",
    ),
}
HEADS = {
    name: CatalogueItem(
        "head", what, (f"{name}.pt",), sha256=sha256, terms="MIT",
        by_hand=f"it is a file of the authors' code repository, {CODE}: clone it, find {name}.pt",
    )
    for name, (what, sha256) in HEAD_FILES.items()
}  # fmt: skip


def _archive(what: str, gigabytes: float, *files: str) -> CatalogueItem:
    terms = "the source data set's"
    return CatalogueItem("archive", what, files, hub=FEATURES, about_gb=gigabytes, terms=terms)


ARCHIVES = {
    "assembly101_tsm": _archive(
        "Assembly101, TSM 2048-d at 3.75 fps, 265 videos of camera C10119", 3.37,
        "assembly101_small/assembly101_tsm_stride8.pt",
        "assembly101_annotations/assembly101_coarse_segments.csv",
    ),
    "egoprocel_fact": _archive(
        "EgoProceL, FACT's I3D 2048-d at 4 fps, 423 videos", 8.33,
        "egoprocel_small/fact_npy_features_4fps.pt",
        "egoprocel_annotations/egoprocel_fact_features_segments.csv",
    ),
    "egoprocel_pooled": _archive(
        "EgoProceL, pooled V-JEPA 2.1 1408-d, 423 videos", 5.73,
        "egoprocel_small/pooled_features_fact.pt",
        "egoprocel_annotations/egoprocel_segments.csv",
    ),
    "cholec80_plstitch": _archive(
        "Cholec80, PL-Stitch 768-d at 1 fps, 80 videos", 0.57,
        "Cholec80/cholec80_pl_stitch_vitb16_1fps.pt",
    ),
    "m2cai16_plstitch": _archive(
        "M2CAI16, PL-Stitch 768-d at 1 fps, 41 videos", 0.29,
        "m2cai/m2cai16_pl_stitch_vitb16_1fps.pt",
    ),
    "lemon_plstitch": _archive(
        "LEMON, PL-Stitch 768-d at 4 fps, 4,194 videos in shards", 40.2,
        "lemon/pl_stitch_vitb16_4fps/sharded/*",
    ),
}  # fmt: skip


DATA_SETS = {
    "egoexo4d": CatalogueItem(
        "data set", "Ego-Exo4D takes at 448 px", about_gb=439.0, terms="a licence to be signed",
        by_hand="sign the licence form of Ego-Exo4D (https://docs.ego-exo4d-data.org), wait for "
        "the AWS keys, install the `egoexo` tool as told there, then run `egoexo -o "
        "$PJEPA_DATA_ROOT/egoexo4d --parts metadata annotations downscaled_takes/448 --benchmarks "
        "keystep --views ego`",
    ),
    "assembly101": CatalogueItem(
        "data set", "Assembly101 videos and coarse annotations", terms="the set's own",
        by_hand="it is moving to Hugging Face as cvml-nus/assembly101, videos first "
        f"(https://huggingface.co/datasets/cvml-nus/assembly101 {UNCHECKED}); accept its terms, "
        "then run `hf download cvml-nus/assembly101 --repo-type dataset --local-dir "
        "$PJEPA_DATA_ROOT/assembly101`; `pjepa fetch assembly101_tsm` has features of one camera",
    ),
    "egoprocel": CatalogueItem(
        "data set", "EgoProceL features and labels as FACT packages them", terms="the set's own",
        by_hand="download egoprocel from the Google Drive folder that the README of "
        "https://github.com/ZijiaLewisLu/CVPR2024-FACT links, and unpack it at "
        "$PJEPA_DATA_ROOT/egoprocel; `pjepa fetch egoprocel_fact` needs no Drive",
    ),
    "mstcn": CatalogueItem(
        "data set", "50Salads, GTEA, Breakfast as MS-TCN packs them", terms="the sets' own",
        by_hand="download data.zip of Zenodo record 3625992 and unpack it so that "
        "$PJEPA_DATA_ROOT/50salads, gtea and breakfast are there",
    ),
}  # fmt: skip

CATALOGUE: dict[str, CatalogueItem] = {
    **_backbones(), **_encoders(), **HEADS, **ARCHIVES, **DATA_SETS,
}  # fmt: skip


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
