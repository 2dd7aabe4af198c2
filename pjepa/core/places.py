"""File names shared by several stages; folders belong to the stages (`pjepa.tools.paths`)."""

from pathlib import Path

PARAMS = Path("params.yaml")  # in the folder a stage runs in, as for DVC

VIDEOS_FILE = "videos.parquet"
BOUNDARIES_FILE = "boundaries.parquet"
TAKES_FILE = "takes.parquet"
SEGMENTS_FILE = "segments.parquet"
CLASSES_FILE = "classes.json"
