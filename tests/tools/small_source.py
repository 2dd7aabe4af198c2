"""A source of four takes, and what `pjepa data check` finds in it."""

from typing import Any

from pjepa.core.tables import Classes, VideoRow
from pjepa.takes.source import Annotation, Source, take_row
from pjepa.tools.check import Finding, check_source
from pjepa.tools.params import Params


def small_source(**changes: Any) -> Source:
    """Four takes of 10 s; two classes each half of the time."""
    videos = [VideoRow(f"t{k}", f"{k}.mp4", 30.0, 10.0, root="data") for k in range(4)]
    takes = [take_row(f"t{k}", "x", split, participant=f"p{k}")
             for k, split in enumerate(("train", "train", "val", "test"))]  # fmt: skip
    segments = [
        Annotation(f"t{k}", *span, label) for k in range(4) for label, span in
        enumerate(((0.0, 5.0), (5.0, 10.0)))
    ]  # fmt: skip
    values = {"videos": videos, "takes": takes, "segments": segments}
    return Source(**{**values, "classes": Classes(("background", "cut"), 0), **changes})


def findings(source: Source, **params: Any) -> list[Finding]:
    return check_source(source, Params.model_validate(params))[1]
