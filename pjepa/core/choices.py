"""Values that params, code and the command line choose from; importing them costs nothing."""

from __future__ import annotations

from typing import Literal

ReaderName = Literal["auto", "decord", "pyav"]
Resampler = Literal["cv2", "antialias"]
CropView = Literal["center", "first", "middle", "last"]
WindowScope = Literal["segment", "take"]
WindowMode = Literal["block", "trailing"]
SegmentKind = Literal["annotated", "fixed", "found", "ruptures"]
SegmentChoice = Literal["auto", "found", "fixed"]  # where nobody annotates segments
FeatureFormat = Literal["npy", "npy-dt", "safetensors", "parquet"]
