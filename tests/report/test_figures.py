"""Pictures: right takes, safe names, same bytes, nothing invented where data is missing."""

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


def tracks(cells: dict[str, Cell], *names: str) -> list[Track]:
    predictions = {("linear", name): read_predictions(cells[name].folder) for name in names}
    return probe_tracks({"linear": [cells[name] for name in names]}, predictions)


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, []), (1, ["t0"]), (3, ["t0", "t5", "t10"]), (5, ["t0", "t5", "t10", "t2", "t8"])],
)
def test_best_median_worst_then_between(count: int, expected: list[str]) -> None:
    chosen = chosen_takes(GAINS, count)
    assert [choice.gain.take_id for choice in chosen] == expected
    why = ["best", "median", "worst", "number", "number"]
    assert [choice.why.split()[0] for choice in chosen] == why[:count]


def test_few_takes_are_all_chosen_once() -> None:
    everyone = [choice.gain.take_id for choice in chosen_takes(GAINS, 99)]
    assert sorted(everyone) == sorted(gain.take_id for gain in GAINS)
    assert [choice.gain.take_id for choice in chosen_takes(GAINS[:1], 4)] == ["t0"]
    assert chosen_takes([], 4) == []


def test_cells_have_kinds_and_takes_gains(cells: dict[str, Cell]) -> None:
    assert {name: cell_kind(cell) for name, cell in cells.items()} == KINDS
    points = [gain.points for gain in take_gains(cells["raw"], cells["pjepa"])]
    assert len(points) == 6
    assert points == sorted(points, reverse=True)
    assert np.mean(points) > 20


def test_a_hundred_classes_have_looks_of_their_own() -> None:
    looks = [class_look(label, None) for label in range(117)]
    assert len(set(looks)) == 117
    assert class_look(117, None) in looks  # then they come again; the number tells them apart
    assert class_look(0, 0).color == BACKGROUND
    assert class_look(1, 0) == class_look(0, None)
    assert class_look(-1, 0) != class_look(0, 0)


def test_the_legend_lists_what_occurs_once_done_before_guessed() -> None:
    strips = [Strip("truth", np.array([0, 3, 3, 5, -1])), Strip("raw", np.array([5, 3, 9, 0, 0]))]
    assert shown_labels(strips, background=0) == [3, 5, 9, 0, -1]


@pytest.mark.slow
def test_timelines_are_drawn_under_names_that_last(cells: dict[str, Cell], tmp_path: Path) -> None:
    classes, all_three = read_classes(paths.CLASSES), tracks(cells, "raw", "pjepa", "history")
    captions = draw_timelines(all_three, classes, 4, tmp_path)
    assert list(captions) == ["best.png", "median.png", "worst.png", "take-4.png"]
    assert sorted(captions) == sorted(path.name for path in tmp_path.iterdir())
    assert "best of 6 takes by gain" in captions["best.png"]
    assert imread(tmp_path / "best.png").shape[1] == 1100
    first = (tmp_path / "best.png").read_bytes()
    assert b"matplotlib" not in first.lower()
    draw_timelines(all_three, classes, 1, tmp_path)
    assert (tmp_path / "best.png").read_bytes() == first
    assert draw_timelines(tracks(cells, "raw"), classes, 3, tmp_path) == {}


def test_every_probe_has_its_strips(cells: dict[str, Cell]) -> None:
    mine = [cells["raw"], cells["pjepa"]]
    predictions = {(p, c.representation): {} for p in ("linear", "fact") for c in mine}
    found = probe_tracks({"linear": mine, "fact": mine[:1]}, predictions)  # type: ignore[arg-type]
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
