"""The report's numbers: from the listed cells only, paired, grouped by privilege, repeatable."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pjepa.core.text import escaped, markdown_table
from pjepa.metrics.bootstrap import Interval
from pjepa.probes.linear.probe import primitive_targets
from pjepa.report.config import CONTROLS, ENCODED, KNOWN, ReportConfig
from pjepa.report.gains import DemoNumbers, demo_numbers, proof_claims
from pjepa.report.markdown import ABOUT, headline, headline_markdown, report_markdown
from pjepa.report.results import Results, read_results
from pjepa.report.tables import claim_line, headline_rows, interval_span, metrics_json, report_json
from pjepa.storage.writing import write_json
from pjepa.streams.stream import StreamReader, read_labels
from pjepa.tools import paths
from pjepa.tools.summary import summary_table
from pjepa.ui.console import InputError, plain_table
from stages.report import run
from tests.report.conftest import PRIMITIVE

CONFIG = ReportConfig(bootstrap=50)
ALL = (*CONTROLS, *ENCODED)


def results(representations: tuple[str, ...] = ALL) -> Results:
    return read_results(("linear",), representations, paths.cell, CONFIG)


def test_a_missing_cell_is_named(project: Path) -> None:
    with pytest.raises(InputError, match="results/probe/linear-nothing: no such cell"):
        results(("raw", "nothing"))
    with pytest.raises(InputError, match="nothing to report"):
        results(())


def test_only_listed_cells_are_read(project: Path) -> None:
    found = results(("raw", "pjepa"))
    assert set(metrics_json(found, None)["linear"]) == {"raw", "pjepa"}
    assert [d.name for d in found.differences] == ["pjepa - raw"]


def demo_with(found: Results, ceilings: Path, primitive: dict[str, float]) -> DemoNumbers:
    """The demo's numbers with these readings of the primitive."""
    demo = demo_numbers(found, ceilings)
    assert demo is not None
    return replace(demo, primitive=primitive)


def test_metrics_are_flat_and_rounded(project: Path) -> None:
    found = results()
    demo = demo_with(found, paths.DEMO_CEILINGS, {"raw": 97.123456})
    values = metrics_json(found, demo)
    cell = json.loads((paths.cell("linear", "raw") / "metrics.json").read_text())
    names = ("acc", "acc_bg", "edit", "f1_10", "f1_25", "f1_50")
    assert values["linear"]["raw"] == {name: round(cell[name], 4) for name in names}
    assert tuple(values["linear"]["raw"]) == names
    assert values["demo"]["primitive_raw"] == 97.1235
    assert set(values["demo"]) == {"appearance", "history", "gap_closed", "primitive_raw"}
    numbers = [*values["demo"].values(), *values["linear"]["pjepa"].values()]
    assert all(isinstance(number, float) for number in numbers)


def test_summary_and_report_round_alike(project: Path) -> None:
    """83.851 is 83.9 in both; stored as 83.85 it would print as 83.8."""
    found = results(("raw", "pjepa"))
    cells = [replace(c, metrics=dict.fromkeys(c.metrics, 83.851)) for c in found.cells]
    same = replace(found, cells=cells)
    _, _, rows = summary_table(metrics_json(same, None), "linear")
    reported = {row[0].strip("†"): row[1] for row in headline_rows(same, "linear")}
    assert {row[0].partition(":")[0]: row[1] for row in rows} == reported
    assert set(reported.values()) == {"83.9"}


def test_differences_are_paired_and_agree_with_the_means(project: Path) -> None:
    found = results()
    names = {difference.name for difference in found.differences}
    assert {f"{name} - raw" for name in ALL if name != "raw"} <= names
    assert {"pjepa - random", "pjepa - time", "pjepa - history"} <= names
    assert "pjepa_segment - segment_mean" in names
    assert len(names) == len(found.differences)
    for difference in found.differences:
        first = found.cell("linear", difference.first)
        second = found.cell("linear", difference.second)
        assert first is not None
        assert second is not None
        expected = first.metrics["edit"] - second.metrics["edit"]
        assert difference.intervals["edit"].mean == pytest.approx(expected)
    gain = found.difference("linear", "pjepa", "raw")
    assert gain is not None
    assert gain.intervals["acc"].excludes_zero
    assert found.difference("linear", "raw", "pjepa") is None


def test_bold_means_surely_better_than_raw(project: Path) -> None:
    lines = headline_markdown(results(), "linear").splitlines()
    rows = {line.split("|")[1].strip().strip("`"): line for line in lines}
    assert "**" in rows["pjepa"]
    assert "**" not in rows["raw"]
    assert lines.index(rows["*with annotated boundaries*"]) < lines.index(rows["history"])
    assert lines.index(rows["history"]) < lines.index(rows["*without annotated boundaries*"])
    assert lines.index(rows["*without annotated boundaries*"]) < lines.index(rows["time"])


def test_the_headline_is_one_finding_with_its_interval(project: Path) -> None:
    found = results()
    gain = found.difference("linear", "pjepa", "raw")
    assert gain is not None
    text = headline(found).replace("\N{NO-BREAK SPACE}", " ")
    acc = gain.intervals["acc"]
    assert f"**{acc.mean:+.1f} points (95 % interval {interval_span(acc)})** against raw" in text
    assert "`history`, the best control" in text
    assert "P-JEPA was given the annotated boundaries" in text
    vague = replace(gain, intervals={**gain.intervals, "acc": Interval(1.0, -2.0, 4.0, 9)})
    few = replace(gain, intervals={**gain.intervals, "acc": Interval(1.0, -2.0, 4.0, 3)})
    for other, wanted in ((vague, "+4.0, no clear difference)"), (few, "3 groups: no interval)")):
        assert wanted in headline(replace(found, differences=(other,)))
    raw = tuple(cell for cell in found.cells if cell.representation == "raw")
    assert headline(replace(found, cells=raw, differences=())) == ""


def test_every_representation_is_explained() -> None:
    assert set(ABOUT) == set(KNOWN["representations"])


def test_report_says_what_was_used(project: Path) -> None:
    found = results()
    text = report_markdown(found, None, {"a.png": "take|1 <b>"})
    assert "Metric convention `release`: accuracy and F1 are pooled over takes" in text
    assert "| `pjepa` | with annotated boundaries | annotated / annotated | none | 7.5 |" in text
    assert (
        "| `time` | without annotated boundaries | none / none | none | rest of the take |" in text
    )
    assert "### The supplement's 30-epoch fit" in text
    assert "- `raw`: the fits differ by" in text
    assert r"![take\|1 \<b\>](a.png)" in text
    whole = report_json(found, None)
    assert whole["takes"] == 6
    assert whole["cells"]["linear"]["random"]["provenance"]["boundaries_test"] == "annotated"
    assert "excludes_zero" in whole["differences"][0]["acc"]


def test_names_cannot_break_a_table() -> None:
    assert escaped("a|b\n*c*_d_") == r"a\|b \*c\*\_d\_"
    table = markdown_table(["x", "y"], [[escaped("a|b"), "1"]])
    assert table.splitlines()[-1] == r"| a\|b | 1 |"


def test_ceilings_and_gap(project: Path, tmp_path: Path) -> None:
    found = results()
    demo = demo_with(found, paths.DEMO_CEILINGS, {"raw": 97.0, "pjepa": 90.0})
    raw = found.cell("linear", "raw")
    assert raw is not None
    assert demo.gap_closed["raw"] == pytest.approx(100 * (raw.metrics["acc"] - 50) / 45)
    assert set(demo.gap_closed) == {"raw", "random", "history", "pjepa"}
    assert demo_numbers(found, tmp_path / "none.json") is None
    wrong = tmp_path / "ceilings.json"
    write_json(wrong, json.loads(paths.DEMO_CEILINGS.read_text()) | {"split": "val"})
    with pytest.raises(InputError, match="computed on val, but cells report test"):
        demo_numbers(found, wrong)


def test_proof_promises_only_where_order_is_kept(project: Path, tmp_path: Path) -> None:
    found = results()
    demo = demo_with(found, paths.DEMO_CEILINGS, {"raw": 40.0})
    claims = {claim.what: claim for claim in proof_claims(found, demo)}
    assert claims["pjepa - raw"].holds is True
    assert claims["true primitive read from raw"].holds is False
    assert claims["pjepa - history"].holds is None
    assert claims["gap between the ceilings closed by pjepa"].holds is True
    assert claim_line(claims["true primitive read from raw"]) == (
        "true primitive read from raw: 40.0 % (at least 60: DOES NOT HOLD)"
    )
    values = json.loads(paths.DEMO_CEILINGS.read_text()) | {"order": "shuffled"}
    write_json(tmp_path / "shuffled.json", values)
    shuffled = demo_with(found, tmp_path / "shuffled.json", {"raw": 40.0})
    assert {claim.holds for claim in proof_claims(found, shuffled)} == {None}


def test_primitives_are_joined_by_take_and_time(project: Path) -> None:
    stream = paths.representation_streams(paths.representation("raw"))[0]
    targets = primitive_targets(StreamReader(stream), paths.DEMO_TRUTH)
    for take, labels in read_labels(paths.LABELS).items():
        np.testing.assert_array_equal(targets[take], PRIMITIVE[labels])
    demo = demo_numbers(results(), paths.DEMO_CEILINGS)
    assert demo is not None
    assert set(demo.primitive) == {"raw", "pjepa"}
    assert demo.primitive["raw"] > 80


def test_plain_table_is_aligned() -> None:
    text = plain_table("t", ["name", "acc"], [["raw", "5.0"], ["longer", "15.0"]])
    assert text.splitlines() == ["t", "name     acc", "raw      5.0", "longer  15.0"]


@pytest.mark.slow
def test_stage_writes_everything_twice_alike(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run()
    shutil.copytree(paths.REPORT, tmp_path / "first")
    metrics = paths.METRICS.read_bytes()
    run()
    printed = capsys.readouterr().out
    assert "pjepa - raw: +" in printed
    assert headline_rows(results(), "linear")[0][0] in printed
    files = [path for path in paths.REPORT.rglob("*") if path.is_file()]
    names = sorted(path.relative_to(paths.REPORT).as_posix() for path in files)
    pictures = ["summary", "curves", "probe", "progress", "tsne", "pair", "classes", "confusion"]
    assert {f"{name}.png" for name in pictures} <= set(names)
    assert {"index.html", "report.md", "report.json", "analyses.json"} <= set(names)
    assert {"plots/progress.csv", "plots/confusion.csv"} <= set(names)
    assert sum(name.startswith("timelines/") for name in names) == 4
    for name in names:
        assert (paths.REPORT / name).read_bytes() == (tmp_path / "first" / name).read_bytes()
    assert paths.METRICS.read_bytes() == metrics
