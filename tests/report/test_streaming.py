"""Several probes, streamed: every table says what is different about its numbers."""

import json
from pathlib import Path

import pytest

from pjepa.report.config import ReportConfig
from pjepa.report.markdown import overview_markdown, report_markdown, score_text
from pjepa.report.results import Results, read_results
from pjepa.report.tables import headline_rows, marked_name, metrics_json, report_json, table_mark
from pjepa.storage.reading import read_json
from pjepa.storage.writing import write_json
from pjepa.tools import paths
from pjepa.ui.console import InputError
from tests.report.conftest import COMMON, write_attentive_cell

NAMES = ("raw", "segment_mean", "pjepa")


@pytest.fixture
def both(project: Path) -> Results:
    for name in NAMES:
        if not paths.cell("attentive", name).exists():
            write_attentive_cell(name)
    config = ReportConfig(bootstrap=50)
    return read_results(("linear", "attentive"), NAMES, paths.cell, config)


def test_every_probe_is_shown_offline_and_streamed(both: Results) -> None:
    table = overview_markdown(both).splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert rows[0] == ["probe", "context", *(f"`{name}`" for name in NAMES)]
    contexts = ["offline", "segments", "seconds"]
    assert [row[:2] for row in rows[2:]] == [
        [probe, context] for probe in ("linear", "attentive") for context in contexts
    ]
    assert rows[2][2:] == rows[3][2:]  # the linear probe is causal
    cell = both.cell("attentive", "pjepa")
    assert cell is not None
    assert rows[6][4].strip("*") == f"{cell.streamed['segments'].metrics['acc']:.1f}"
    text = report_markdown(both, None, {})
    assert "## All probes, `acc`" in text
    assert text.count("the same as the offline scores") == 3  # 8 s are whole chunks of 4 tokens
    assert "Streamed, one annotated segment at a time (paper Table 3):" in text
    assert "up to 0.75 s ahead, to the end of its block." in text
    assert text.count("### The supplement's 30-epoch fit") == 1


def test_differences_cover_references_and_streams(both: Results) -> None:
    found = {(d.probe, d.name, d.protocol) for d in both.differences}
    for probe in ("linear", "attentive"):
        assert (probe, "pjepa - raw", "offline") in found
        assert (probe, "pjepa - segment_mean", "offline") in found
    assert ("attentive", "pjepa - raw", "segments") in found
    assert not any(probe == "linear" and p != "offline" for probe, _, p in found)
    streamed = both.difference("attentive", "pjepa", "raw", "segments")
    cells = [both.cell("attentive", name) for name in ("pjepa", "raw")]
    values = [cell.streamed["segments"].metrics["acc"] for cell in cells if cell]
    assert streamed is not None
    assert streamed.intervals["acc"].mean == pytest.approx(values[0] - values[1])


def test_bold_follows_the_interval_of_its_own_protocol(both: Results) -> None:
    for cell in both.cells:
        for protocol in ("offline", "segments", "seconds"):
            gain = both.difference(cell.probe, cell.representation, "raw", protocol)
            if gain is not None:
                text = score_text(both, cell, "acc", protocol)
                assert text.startswith("**") == (gain.intervals["acc"].low > 0)


def test_numbers_of_streams_stand_in_the_report(both: Results) -> None:
    assert set(metrics_json(both, None)) == {"linear", "attentive"}
    whole = report_json(both, None)["cells"]["attentive"]["raw"]
    assert whole["streamed"]["seconds"]["lookahead_s"] == pytest.approx(2.75)
    assert whole["selection"] == "holdout"
    assert json.loads(json.dumps(whole)) == whole


def test_habits_and_upstream_labels_are_marked(both: Results) -> None:
    folder = paths.cell("attentive", "raw")
    before = read_json(folder / "details.json")
    changed = before | {"selection": {"on": "test", "on_reported": True}}
    changed["provenance"] = before["provenance"] | {"train_labels": True}
    changed["labels"] = before["labels"] | {"label_fraction": 0.15, "variant": "paper"}
    write_json(folder / "details.json", changed)
    try:
        found = read_results(("attentive",), NAMES, paths.cell, ReportConfig(bootstrap=10))
    finally:
        write_json(folder / "details.json", before)
    cells = found.of_probe("attentive")
    assert table_mark(cells) == "chosen on test; 15 % of train labels, paper variant"
    assert [marked_name(cell) for cell in cells] == ["raw†", "segment_mean", "pjepa"]
    assert "raw†" in [row[0] for row in headline_rows(found, "attentive")]
    text = report_markdown(found, None, {})
    corner = "| representation (chosen on test; 15 % of train labels, paper variant) |"
    assert text.count(corner) == 3  # offline, by segments, what was given
    assert "†: labels went into the features" in text
    assert table_mark(both.of_probe("linear")) == ""


def test_a_cell_of_an_older_version_is_refused(both: Results, tmp_path: Path) -> None:
    write_json(tmp_path / "details.json", {"variants": []})
    write_json(tmp_path / "metrics.json", {})
    with pytest.raises(InputError, match="older version; run `dvc repro`"):
        read_results(("linear",), ("raw",), lambda *_: tmp_path, ReportConfig())


def test_seeds_are_told(project: Path) -> None:
    common = COMMON.model_copy(update={"seeds": (0, 1)})
    write_attentive_cell("smooth", common)
    found = read_results(("attentive",), ("smooth",), paths.cell, ReportConfig(bootstrap=10))
    assert found.cells[0].runs == 2
    assert "Means over up to 2 runs." in report_markdown(found, None, {})
