"""A source of four takes, and what `pjepa data check` finds in it."""

from typing import Any

from pjepa.core.tables import Classes, VideoRow
from pjepa.takes.source import Annotation, Source, take_row
from pjepa.tools.check import check_source
from pjepa.tools.params import Params

HALVES = tuple((f"t{k}", *span) for k in range(4) for span in ((0.0, 5.0, 0), (5.0, 10.0, 1)))
ROWS = {f"t{k}": VideoRow(f"t{k}", f"{k}.mp4", 30.0, 10.0, root="data") for k in range(4)}


def small_source(
    splits: str = "train train val test",
    spans: Any = HALVES,  # (take, start, end, label)
    same: str | None = None,  # what a train and a val take have in common
    **changes: Any,
) -> Source:
    """Four takes of 10 s; two classes each half of the time."""
    takes = [
        take_row(f"t{k}", "x", split, participant=f"p{k}") for k, split in enumerate(splits.split())
    ]
    if same:
        takes[0][same] = takes[2][same] = "one"
    values = {
        "videos": list(ROWS.values()),
        "takes": takes,
        "segments": [Annotation(*span) for span in spans],
        "classes": Classes(("background", "cut"), 0),
    }
    return Source(**{**values, **changes})


def lines(source: Source, params: dict[str, Any] | None = None) -> list[str]:
    """The findings, three names each."""
    return [f.line(3) for f in check_source(source, Params.model_validate(params or {}))[1]]
