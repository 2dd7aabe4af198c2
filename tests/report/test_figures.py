"""Pictures: right takes, safe names, same bytes, nothing invented where data is missing."""

import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from pjepa.report.config import ReportConfig
from pjepa.report.figures import (
    BACKGROUND,
    Strip,
    class_look,
    draw_strip,
    probe_tracks,
    save_png,
)
from pjepa.report.gains import Gain, chosen_takes, take_gains
from pjepa.report.results import Cell, Results, read_results
from pjepa.report.widgets import cell_kind, read_curves
from pjepa.tools import paths
from pjepa.ui.console import InputError

KINDS = {
    "raw": "raw",
    "smooth": "control without annotated boundaries",
    "pjepa": "P-JEPA",
    "history": "control with annotated boundaries",
}


@pytest.fixture
def cells(project: Path) -> dict[str, Cell]:
    found = read_results(("linear",), tuple(KINDS), paths.cell, ReportConfig(bootstrap=10))
    return {cell.representation: cell for cell in found.cells}


@pytest.mark.parametrize(
    ("takes", "count", "expected"),
    [
        (11, 0, []),
        (11, 1, ["t0 best"]),
        (11, 5, ["t0 best", "t5 median", "t10 worst", "t2 number", "t8 number"]),
        (1, 4, ["t0 best"]),
        (0, 4, []),
    ],
)
def test_best_median_worst_then_between(takes: int, count: int, expected: list[str]) -> None:
    chosen = chosen_takes([Gain(f"t{rank}", 10.0, 90.0 - rank) for rank in range(takes)], count)
    assert [f"{choice.gain.take_id} {choice.why.split()[0]}" for choice in chosen] == expected


def test_charts_tell_controls_by_privilege_and_takes_are_sorted_by_gain(
    cells: dict[str, Cell],
) -> None:
    assert {name: cell_kind(cell) for name, cell in cells.items()} == KINDS
    points = [gain.points for gain in take_gains(cells["raw"], cells["pjepa"])]
    assert points == sorted(points, reverse=True)


def test_a_hundred_classes_have_looks_of_their_own() -> None:
    looks = [class_look(label, None) for label in range(117)]
    assert len(set(looks)) == 117
    assert class_look(117, None) in looks  # then they come again; the number tells them apart
    assert class_look(0, 0).color == BACKGROUND
    assert class_look(1, 0) == class_look(0, None)
    assert class_look(-1, 0) != class_look(0, 0)


def test_every_probe_has_its_strips(cells: dict[str, Cell]) -> None:
    mine = (cells["raw"], cells["pjepa"], replace(cells["raw"], probe="fact"))
    predictions = {(cell.probe, cell.representation): {} for cell in mine}
    found = probe_tracks(Results(mine, ()), predictions)  # type: ignore[arg-type]
    assert [track.name for track in found] == ["raw, linear", "pjepa, linear", "raw, fact"]


def test_a_gap_in_time_stays_empty() -> None:
    axes = Figure().subplots()
    times = np.array([0.0, 0.25, 0.5, 9.0, 9.25])
    draw_strip(axes, Strip("truth", np.array([1, 1, 1, 1, 1])), times, 0.25, None)
    spans = [path.get_extents() for path in axes.collections[0].get_paths()]
    assert [(box.x0, box.x1) for box in spans] == [(0.0, 0.75), (9.0, 9.5)]


def test_curves_are_what_dvclive_wrote(project: Path, tmp_path: Path) -> None:
    curves = read_curves(paths.PRETRAIN_RESULTS)
    assert [curve.name for curve in curves] == ["loss", "effective_rank", "extra"]
    assert read_curves(tmp_path) == []
    (tmp_path / "plots/metrics").mkdir(parents=True)
    for content in (b"", b"\xf5\x00"):
        (tmp_path / "plots/metrics/loss.tsv").write_bytes(content)
        with pytest.raises(InputError, match=r"loss.tsv: not a curve; run `dvc repro pretrain`"):
            read_curves(tmp_path)


def test_letters_that_the_font_lacks_are_no_warning(tmp_path: Path) -> None:
    figure = Figure()
    figure.text(0.5, 0.5, "日本")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save_png(figure, tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size
