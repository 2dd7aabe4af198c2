"""The file of the linear probe over epochs: results/curve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pjepa.storage.reading import read_object
from pjepa.storage.writing import atomic_folder, write_csv, write_json
from pjepa.ui.console import InputError

JSON, CSV = "curve.json", "curve.csv"
LEARNED, REFERENCES = "pjepa", ("raw", "random")


@dataclass(frozen=True)
class ProbeCurve:
    """The `acc` of a linear probe on the hold-out by epoch; `why_not` says why there is none."""

    scores: Mapping[int, float] = field(default_factory=dict)
    references: Mapping[str, float] = field(default_factory=dict)  # flat lines
    fitted: int = 0  # takes
    scored: int = 0
    why_not: str = ""


def write_curve(curve: ProbeCurve, out: Path) -> None:
    """Write curve.json, and curve.csv for `dvc plots`, which has no rows without a curve."""
    with atomic_folder(out) as folder:
        write_json(folder / JSON, asdict(curve))
        flat = [curve.references.get(name, "") for name in REFERENCES]
        rows = [[epoch, score, *flat] for epoch, score in curve.scores.items()]
        write_csv(folder / CSV, ["epoch", LEARNED, *REFERENCES], rows)


def read_curve(path: Path) -> ProbeCurve:
    """Return the content of curve.json."""
    values = read_object(path, "scores", "references")
    try:
        scores = {int(epoch): score for epoch, score in values.pop("scores").items()}
        flat = values.pop("references")
        references = {name: flat[name] for name in REFERENCES if name in flat}
        return ProbeCurve(dict(sorted(scores.items())), references, **values)
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"{path}: not a curve ({error}); run `dvc repro curve`") from None
