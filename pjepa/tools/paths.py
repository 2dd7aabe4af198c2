"""Every name on disk, once. Relative to the project root, as dvc.yaml writes them."""

from __future__ import annotations

from pathlib import Path

from pjepa.core.tables import (
    BOUNDARIES_FILE,
    CLASSES_FILE,
    PARAMS,
    SEGMENTS_FILE,
    TAKES_FILE,
    VIDEOS_FILE,
)
from pjepa.takes.demo.world import DEMO, DEMO_CEILINGS, DEMO_TRUTH, DEMO_VIDEOS

__all__ = ["DEMO", "DEMO_CEILINGS", "DEMO_TRUTH", "DEMO_VIDEOS", "PARAMS"]

SOURCES = Path("data/sources")
PIPELINE = Path("dvc.yaml")

TAKES = Path("data/takes")
VIDEOS_TABLE = TAKES / VIDEOS_FILE
BOUNDARIES_TABLE = TAKES / BOUNDARIES_FILE
TAKES_TABLE = TAKES / TAKES_FILE
SEGMENTS_TABLE = TAKES / SEGMENTS_FILE
CLASSES = TAKES / CLASSES_FILE

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
QUESTIONS = Path("results/questions")  # of `pjepa questions`, no stage


def source_list(name: str) -> Path:
    """Return the Git-tracked list of the files of a data source."""
    return SOURCES / f"{name}.json"


def representation(name: str) -> Path:
    """Return the folder of one representation."""
    return REPRESENTATIONS / name


def representation_streams(folder: Path) -> list[Path]:
    """Return the stream of a representation, or one per variant (`random` has several draws)."""
    single = folder / STREAM.name
    if single.exists():
        return [single]
    return sorted(folder.glob(f"*/{STREAM.name}"))


def cell(probe: str, name: str) -> Path:
    """Return the results folder of one probe on one representation."""
    return PROBE_RESULTS / f"{probe}-{name}"
