"""The authors' public feature archives (data set FelTris/pjepa_features on the hub), by name."""

from __future__ import annotations

from dataclasses import dataclass

from pjepa.core.tables import FeatureInfo
from pjepa.takes.config import ArchiveConfig

I3D_WINDOW_S = 6.4  # 64 frames at 10 per second, centred
POOLED_WINDOW_S = 16.0  # the paper's 64 frames at 4 per second


@dataclass(frozen=True)
class Archive:
    """Where an archive keeps its features and segments, and what its columns are called."""

    dataset: str
    features: str  # relative to data.archive.path
    segments: str | None  # None: the archive holds labels itself
    label: str  # the CSV's column of class ids
    names: tuple[str, ...]  # columns that may hold class names
    background: int | None
    info: FeatureInfo
    with_labels: str | None = None  # archive whose takes bring the labels of this unlabelled one


_STITCH = FeatureInfo("PL-Stitch ViT-B/16", lookahead_s=0.0)
ARCHIVES: dict[str, Archive] = {
    "assembly101": Archive(
        "assembly101",
        "assembly101_small/assembly101_tsm_stride8.pt",
        "assembly101_annotations/assembly101_coarse_segments.csv",
        "action_id",
        ("action_cls", "action_name", "action_label"),
        None,
        FeatureInfo("TSM of Assembly101", lookahead_s=0.0, train_labels=True),
    ),
    "egoprocel_fact": Archive(
        "egoprocel",
        "egoprocel_small/fact_npy_features_4fps.pt",
        "egoprocel_annotations/egoprocel_fact_features_segments.csv",
        "fact_step_id",
        ("fact_step_name", "step_name_norm"),
        0,
        FeatureInfo("I3D of FACT, RGB, Kinetics-400", lookahead_s=I3D_WINDOW_S / 2),
    ),
    "egoprocel_pooled": Archive(
        "egoprocel",
        "egoprocel_small/pooled_features_fact.pt",
        "egoprocel_annotations/egoprocel_segments.csv",
        "fact_step_id",
        ("fact_step_name", "step_name_norm"),
        0,
        FeatureInfo("pooled V-JEPA 2.1", lookahead_s=POOLED_WINDOW_S, train_labels=True),
    ),
    "cholec80": Archive(
        "cholec80", "Cholec80/cholec80_pl_stitch_vitb16_1fps.pt", None, "", (), None, _STITCH
    ),
    "m2cai16": Archive(
        "m2cai16", "m2cai/m2cai16_pl_stitch_vitb16_1fps.pt", None, "", (), None, _STITCH
    ),
    "lemon": Archive(
        "lemon",
        "lemon/pl_stitch_vitb16_4fps/sharded/index.pt",
        None,
        "",
        (),
        None,
        _STITCH,
        with_labels="cholec80",
    ),
}


def archive_files(config: ArchiveConfig) -> tuple[str, ...]:
    """Return patterns of the files that a set reads, below `config.path`."""
    known = ARCHIVES[config.set]
    features = config.features or known.features
    found = [features]
    if known.segments is not None:
        found.append(config.segments or known.segments)
    if known.with_labels is not None:
        folder = features.rpartition("/")[0]
        found += [f"{folder}/**/*.pt" if folder else "**/*.pt"]
        found.append(ARCHIVES[known.with_labels].features)
    return tuple(found)
