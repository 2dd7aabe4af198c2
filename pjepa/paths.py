"""Every name on disk, once. Relative to the project root, as dvc.yaml writes them."""

from __future__ import annotations

from pathlib import Path

PARAMS = Path("params.yaml")
SOURCES = Path("data/sources")
PIPELINE = Path("dvc.yaml")

DEMO = Path("data/demo")
DEMO_TRUTH = DEMO / "truth.parquet"
DEMO_CEILINGS = DEMO / "ceilings.json"
DEMO_VIDEOS = DEMO / "videos"

TAKES = Path("data/takes")
VIDEOS_TABLE = TAKES / "videos.parquet"
BOUNDARIES_TABLE = TAKES / "boundaries.parquet"
TAKES_TABLE = TAKES / "takes.parquet"
SEGMENTS_TABLE = TAKES / "segments.parquet"
CLASSES = TAKES / "classes.json"

PATCHES = Path("data/patches")
POOLER = Path("models/pooler")
POOLER_RESULTS = Path("results/pooler")

TOKENS = Path("data/tokens")
STREAM = TOKENS / "stream.parquet"
LABELS = TOKENS / "labels.parquet"

SNAPSHOTS = Path("models/snapshots")
PRETRAIN_RESULTS = Path("results/pretrain")
ENCODER = Path("models/pjepa")
CURVE = Path("results/curve")

REPRESENTATIONS = Path("data/representations")
PROBE_RESULTS = Path("results/probe")
REPORT = Path("results/report")
METRICS = Path("results/metrics.json")


def source_list(name: str) -> Path:
    """The Git-tracked list of the files of a data source."""
    return SOURCES / f"{name}.json"


def representation(name: str) -> Path:
    """The folder of one representation."""
    return REPRESENTATIONS / name


def representation_streams(folder: Path) -> list[Path]:
    """The stream of a representation, or one per variant (`random` has several draws)."""
    single = folder / STREAM.name
    if single.exists():
        return [single]
    return sorted(folder.glob(f"*/{STREAM.name}"))


def cell(probe: str, name: str) -> Path:
    """The results folder of one probe on one representation."""
    return PROBE_RESULTS / f"{probe}-{name}"
