"""Paths of the demo, the one source whose data the pipeline makes itself."""

from pathlib import Path

DEMO = Path("data/demo")
DEMO_TRUTH = DEMO / "truth.parquet"
DEMO_CEILINGS = DEMO / "ceilings.json"
DEMO_VIDEOS = DEMO / "videos"
