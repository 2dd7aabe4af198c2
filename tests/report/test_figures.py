"""The pictures: right takes, safe names, same bytes, and nothing invented where data is missing."""

import warnings
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from pjepa.core.tables import read_classes
from pjepa.report.config import ReportConfig
from pjepa.report.figures import (
    BACKGROUND,
    HUES,
    INKS,
    PATTERNS,
    Strip,
    Track,
    class_look,
    draw_strip,
    draw_timelines,
    probe_tracks,
    save_png,
    shown_labels,
)
from pjepa.report.gains import Gain, chosen_takes, take_gains
from pjepa.report.results import Cell, read_predictions, read_results
from pjepa.report.widgets import cell_kind, read_curves
from pjepa.tools import paths
from pjepa.ui.console import InputError

GAINS = [Gain(f"t{rank}", 10.0, 90.0 - rank) for rank in range(11)]


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


def test_reasons_are_given() -> None:
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


def tracks(names: tuple[str, ...] = ("raw", "pjepa", "history")) -> list[Track]:
    mine = [cells()[name] for name in names]
    predictions = {("linear", c.representation): read_predictions(c.folder) for c in mine}
    return probe_tracks({"linear": mine}, predictions)


def test_a_hundred_classes_have_looks_of_their_own() -> None:
    looks = [class_look(label, None) for label in range(117)]
    assert len(set(looks)) == 117 == len(HUES) * (1 + (len(PATTERNS) - 1) * len(INKS))
    assert class_look(117, None) in looks  # then they come again; the number tells them apart
    assert class_look(0, 0).color == BACKGROUND
    assert class_look(1, 0) == class_look(0, None)
    assert class_look(-1, 0) != class_look(0, 0)


def test_the_legend_lists_what_occurs_once_done_before_guessed() -> None:
    strips = [Strip("truth", np.array([0, 3, 3, 5, -1])), Strip("raw", np.array([5, 3, 9, 0, 0]))]
    assert shown_labels(strips, background=0) == [3, 5, 9, 0, -1]


@pytest.mark.slow
def test_timelines_are_drawn_under_names_that_last(project: Path, tmp_path: Path) -> None:
    captions = draw_timelines(tracks(), read_classes(paths.CLASSES), 4, tmp_path)
    assert list(captions) == ["best.png", "median.png", "worst.png", "take-4.png"]
    assert sorted(captions) == sorted(path.name for path in tmp_path.iterdir())
    assert "best of 6 takes by gain" in captions["best.png"]
    assert imread(tmp_path / "best.png").shape[1] == 1100
    first = (tmp_path / "best.png").read_bytes()
    assert b"matplotlib" not in first.lower()
    draw_timelines(tracks(), read_classes(paths.CLASSES), 1, tmp_path)
    assert (tmp_path / "best.png").read_bytes() == first
    assert draw_timelines(tracks(("raw",)), read_classes(paths.CLASSES), 3, tmp_path) == {}


def test_every_probe_has_its_strips(project: Path) -> None:
    mine = [cells()["raw"], cells()["pjepa"]]
    predictions = {(p, c.representation): {} for p in ("linear", "fact") for c in mine}
    found = probe_tracks({"linear": mine, "fact": mine[:1]}, predictions)  # type: ignore[arg-type]
    assert [track.name for track in found] == ["raw, linear", "pjepa, linear", "raw, fact"]


def test_a_gap_in_time_stays_empty() -> None:
    axes = Figure().subplots()
    times = np.array([0.0, 0.25, 0.5, 9.0, 9.25])
    draw_strip(axes, Strip("truth", np.array([1, 1, 1, 1, 1])), times, 0.25, None)
    spans = [path.get_extents() for path in axes.collections[0].get_paths()]
    assert [(box.x0, box.x1) for box in spans] == [(0.0, 0.75), (9.0, 9.5)]


def test_cells_have_kinds(project: Path) -> None:
    assert [cell_kind(cell) for cell in cells().values()] == [
        "raw",
        "control without annotated boundaries",
        "P-JEPA",
        "control with annotated boundaries",
    ]


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
