"""The pictures: right takes, safe names, same bytes, and nothing invented where data is missing."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from pjepa import paths
from pjepa.config.report import ReportConfig
from pjepa.report.figures import cell_kind, draw_curves, draw_summary, read_curves
from pjepa.report.proof import DemoNumbers
from pjepa.report.results import Cell, read_results
from pjepa.report.timelines import (
    BACKGROUND,
    Gain,
    Strip,
    _draw_strip,
    chosen_takes,
    class_colors,
    draw_timelines,
    take_gains,
    timeline_name,
)
from pjepa.takes.manifest import read_classes

GAINS = [Gain(f"t{rank}", 10.0, 90.0 - rank) for rank in range(11)]
DEMO = DemoNumbers("procedure", 50.0, 95.0, {}, {})


def cells() -> dict[str, Cell]:
    names = ("raw", "smooth", "pjepa", "history")
    found = read_results(("linear",), names, paths.cell, ReportConfig(bootstrap=10))
    return {cell.representation: cell for cell in found.cells}


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, []),
        (1, ["t0"]),
        (3, ["t0", "t5", "t10"]),
        (5, ["t0", "t5", "t10", "t2", "t8"]),
        (99, [f"t{i}" for i in range(11)]),
    ],
)
def test_best_median_worst_then_between(count: int, expected: list[str]) -> None:
    chosen = [choice.gain.take_id for choice in chosen_takes(GAINS, count)]
    assert chosen[:3] == expected[:3] if count < 99 else len(chosen) == 11
    assert sorted(chosen) == sorted(expected)
    assert len(set(chosen)) == len(chosen)


def test_reasons_are_told() -> None:
    why = [choice.why for choice in chosen_takes(GAINS, 4)]
    assert [text.split()[0] for text in why] == ["best", "median", "worst", "number"]
    assert chosen_takes(GAINS[:1], 4)[0].gain.take_id == "t0"
    assert chosen_takes([], 4) == []


def test_gains_come_from_the_cells(project: Path) -> None:
    gains = take_gains(cells()["raw"], cells()["pjepa"])
    assert len(gains) == 6
    points = [gain.points for gain in gains]
    assert points == sorted(points, reverse=True)
    assert np.mean(points) > 20


def test_names_from_data_stay_in_the_folder() -> None:
    for take in ("../../etc/passwd", "a/b", "..", "", "ü" * 300, "x\0y", "a.png\n"):
        name = timeline_name(1, take)
        assert Path(name).name == name
        assert name.startswith("timeline-1-")
        assert len(name) < 90


def test_colours_are_shared_by_strips_and_differ_between_classes() -> None:
    strips = [Strip("truth", np.array([0, 3, 3, 5])), Strip("raw", np.array([5, 3, 9, 0]))]
    colors = class_colors(strips, background=0)
    assert list(colors) == [3, 5, 9, 0]
    assert colors[0] == BACKGROUND
    assert len(set(colors.values())) == 4
    many = class_colors([Strip("truth", np.arange(-1, 60))], background=None)
    assert len(set(many.values())) > 55


def test_timelines_are_drawn(project: Path, tmp_path: Path) -> None:
    captions = draw_timelines(cells(), read_classes(paths.CLASSES), 3, tmp_path)
    assert sorted(captions) == sorted(path.name for path in tmp_path.iterdir())
    assert "best of 6 takes by gain" in next(iter(captions.values()))
    picture = imread(tmp_path / next(iter(captions)))
    assert picture.shape[1] == 1100
    only_raw = {"raw": cells()["raw"]}
    assert draw_timelines(only_raw, read_classes(paths.CLASSES), 3, tmp_path) == {}


def test_a_gap_in_time_stays_empty() -> None:
    axes = Figure().subplots()
    times = np.array([0.0, 0.25, 0.5, 9.0, 9.25])
    _draw_strip(axes, Strip("truth", np.array([1, 1, 1, 1, 1])), times, 0.25, {1: "#000000"})
    spans = [path.get_extents() for path in axes.collections[0].get_paths()]
    assert [(box.x0, box.x1) for box in spans] == [(0.0, 0.75), (9.0, 9.5)]


def test_summary_is_repeatable_and_fits_a_page(project: Path, tmp_path: Path) -> None:
    for name, demo in (("a", DEMO), ("b", DEMO), ("c", None)):
        draw_summary(list(cells().values()), demo, tmp_path / f"{name}.png")
    first = (tmp_path / "a.png").read_bytes()
    assert first == (tmp_path / "b.png").read_bytes()
    assert first != (tmp_path / "c.png").read_bytes()
    assert b"matplotlib" not in first.lower()
    assert imread(tmp_path / "a.png").shape[1] == 900
    kinds = [cell_kind(cell) for cell in cells().values()]
    assert kinds[0] == "raw"
    assert kinds[1] == "control without annotated boundaries"
    assert kinds[2] == "P-JEPA"
    assert kinds[3] == "control with annotated boundaries"


def test_curves_show_what_is_there(project: Path, tmp_path: Path) -> None:
    curves = read_curves(paths.PRETRAIN_RESULTS)
    assert [curve.name for curve in curves] == ["loss", "effective_rank", "extra"]
    draw_curves(curves, tmp_path / "curves.png")
    draw_curves(curves[:1], tmp_path / "one.png")
    assert imread(tmp_path / "curves.png").shape[1] == 900
    assert read_curves(tmp_path) == []
