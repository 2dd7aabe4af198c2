"""The paper's tables as numbers, by the preset that repeats them; percent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

PaperProtocol = Literal[
    "offline", "segments"
]  # segments: streaming, one annotated segment at a time
SEGMENTATION = ("acc", "edit", "f1_10", "f1_25", "f1_50")
WITH_BACKGROUND = ("acc_bg", "acc", "edit", "f1_10", "f1_25", "f1_50")


@dataclass(frozen=True)
class PaperRow:
    """One row of a table of the paper, and which of our numbers belongs beside it."""

    table: str
    probe: str
    representation: str
    scores: Mapping[str, float]
    protocol: PaperProtocol = "offline"
    label_fraction: float = 1.0
    takes: int | None = None  # that the paper reports on


def _rows(
    table: str,
    probe: str,
    names: tuple[str, ...],
    takes: int,
    *values: tuple[float, ...],
    protocol: PaperProtocol = "offline",
    label_fraction: float = 1.0,
) -> tuple[PaperRow, PaperRow]:
    """Return the row without P-JEPA and the row with it."""
    raw, pjepa = (
        PaperRow(
            table, probe, representation, dict(zip(names, row, strict=True)), protocol,
            label_fraction, takes,
        )
        for representation, row in zip(("raw", "pjepa"), values, strict=True)
    )  # fmt: skip
    return raw, pjepa


def _a101(
    table: str, probe: str, raw: tuple[float, ...], pjepa: tuple[float, ...]
) -> tuple[PaperRow, ...]:
    return _rows(f"Table 1, {table}", probe, SEGMENTATION, 120, raw, pjepa)


TSM = (
    *_a101("TSM", "linear", (23.5, 3.0, 2.4, 1.1, 0.4), (40.1, 15.0, 15.2, 13.1, 9.8)),
    *_a101("TSM", "ltcontext", (40.2, 32.2, 34.3, 30.5, 22.4), (42.9, 35.9, 37.3, 34.0, 26.4)),
)
MEAN = (
    *_a101("V-JEPA mean", "linear", (16.1, 3.3, 2.7, 1.9, 1.1), (29.4, 18.6, 16.0, 13.5, 10.3)),
    *_a101(
        "V-JEPA mean", "ltcontext", (30.6, 26.2, 26.0, 21.7, 14.3), (33.8, 27.6, 29.3, 25.0, 18.7)
    ),
)
ACTION = (
    *_a101(
        "V-JEPA action", "linear", (34.0, 18.5, 17.8, 15.5, 10.2), (40.0, 27.8, 26.0, 23.0, 16.9)
    ),
    *_a101(
        "V-JEPA action", "ltcontext", (41.6, 32.7, 34.4, 30.1, 21.9),
        (43.0, 34.2, 35.9, 31.5, 22.3),
    ),
)  # fmt: skip
STREAMING = (
    *_rows(
        "Table 3", "fact", WITH_BACKGROUND, 183, (69.2, 19.2, 18.1, 14.8, 13.8, 10.9),
        (76.8, 39.1, 28.8, 26.9, 25.9, 24.1), protocol="segments",
    ),
    *_rows(
        "Table 3", "ltcausal", WITH_BACKGROUND, 183, (78.6, 55.3, 40.2, 35.0, 32.0, 25.7),
        (80.8, 58.8, 48.9, 42.1, 40.3, 34.4), protocol="segments",
    ),
)  # fmt: skip
_BUDGETS = {
    0.15: ((76.1, 50.8, 41.8, 41.5, 37.8, 26.3), (78.9, 50.1, 52.1, 48.6, 45.6, 36.9)),
    0.33: ((80.7, 61.4, 53.9, 52.3, 49.5, 38.5), (84.5, 66.1, 65.2, 60.1, 57.9, 52.2)),
    0.5: ((83.7, 67.5, 64.6, 62.5, 60.0, 48.1), (88.0, 74.4, 72.7, 67.3, 65.3, 59.8)),
    1.0: ((89.5, 81.8, 83.7, 76.5, 74.5, 68.1), (90.9, 81.2, 81.6, 75.0, 73.5, 69.8)),
}
SPARSITY = tuple(
    row
    for fraction, values in _BUDGETS.items()
    for row in _rows(
        "Table 4", "fact", WITH_BACKGROUND, 183, *values, label_fraction=fraction
    )
)  # fmt: skip
KEYSTEPS = (PaperRow("Table 5", "attentive", "pjepa", {"top1": 56.85}, takes=180),)

PAPER: dict[str, tuple[PaperRow, ...]] = {
    "release-eval-assembly101-clip": TSM,
    "release-assembly101-clip": TSM,
    "assembly101-vjepa-mean": MEAN,
    "assembly101-vjepa-action": ACTION,
    "egoprocel-i3d-streaming": STREAMING,
    "egoprocel-i3d-sparsity": SPARSITY,
    "release-egoprocel-fact": STREAMING,
    "release-eval-egoprocel-fact": STREAMING,
    "egoexo4d": KEYSTEPS,
    "egoexo4d-literal": KEYSTEPS,
}
# What the authors' file names say of an encoder: accuracy twice (or with and without background),
# edit and the three F1, each 0 to 1, added up; a linear or two-head probe, best epoch of the split.
COMBINED: dict[str, float] = {
    "release-eval-assembly101-clip": 1.3333,
    "release-assembly101-clip": 1.3333,
    "release-eval-assembly101-block": 1.1981,
    "release-assembly101-block": 1.1981,
    "release-eval-egoprocel-fact": 2.2408,
    "release-egoprocel-fact": 2.2408,
    "release-eval-egoprocel-pooled": 2.7409,
    "release-egoprocel-pooled": 2.7409,
}
