"""The report's numbers: from the listed cells only, paired, grouped by privilege, repeatable."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pjepa.core.text import escaped, markdown_table
from pjepa.metrics.bootstrap import Interval
from pjepa.report import markdown
from pjepa.report.config import CONTROLS, ENCODED, KNOWN, ReportConfig
from pjepa.report.content import run_page
from pjepa.report.gains import demo_numbers, proof_claims
from pjepa.report.results import Results, read_results
from pjepa.report.tables import (
    claim_line,
    headline_rows,
    metrics_json,
    report_json,
    span,
    with_mark,
)
from pjepa.storage.reading import read_json
from pjepa.storage.writing import write_json
from pjepa.tools import paths
from pjepa.tools.summary import summary_table
from pjepa.ui.console import InputError, plain_table
from stages.report import read_run, run
from tests.report.conftest import COMMON, write_attentive_cell

CONFIG = ReportConfig(bootstrap=50)
ALL = (*CONTROLS, *ENCODED)
THREE = ("raw", "segment_mean", "pjepa")


def results(
    representations: tuple[str, ...] = ALL, probes: tuple[str, ...] = ("linear",)
) -> Results:
    return read_results(probes, representations, paths.cell, CONFIG)


def report_text(found: Results) -> str:
    return run_page(read_run(found, None, CONFIG)).markdown("Results")


@pytest.fixture
def both(project: Path) -> Results:
    """A causal probe, and one whose streamed predictions differ from the offline ones."""
    for name in THREE:
        if not paths.cell("attentive", name).exists():
            write_attentive_cell(name)
    return results(THREE, ("linear", "attentive"))


def test_cells_are_those_listed_and_missing_ones_are_named(project: Path, tmp_path: Path) -> None:
    found = results(("raw", "pjepa"))
    assert set(metrics_json(found, None)["linear"]) == {"raw", "pjepa"}
    assert [d.name for d in found.differences] == ["pjepa - raw"]
    with pytest.raises(InputError, match="results/probe/linear-nothing: no such cell"):
        results(("raw", "nothing"))
    with pytest.raises(InputError, match="nothing to report"):
        results(())
    write_json(tmp_path / "details.json", {"variants": []})
    write_json(tmp_path / "metrics.json", {})
    with pytest.raises(InputError, match="older version; run `dvc repro`"):
        read_results(("linear",), ("raw",), lambda *_: tmp_path, CONFIG)


def test_metrics_are_flat_and_rounded(project: Path) -> None:
    found = results()
    demo = replace(demo_numbers(found, paths.DEMO_CEILINGS), primitive={"raw": 97.123456})
    values = metrics_json(found, demo)
    cell = read_json(paths.cell("linear", "raw") / "metrics.json")
    names = ("acc", "acc_bg", "edit", "f1_10", "f1_25", "f1_50")
    assert values["linear"]["raw"] == {name: round(cell[name], 4) for name in names}
    assert tuple(values["linear"]["raw"]) == names
    assert values["demo"]["primitive_raw"] == 97.1235
    assert set(values["demo"]) == {"appearance", "history", "gap_closed", "primitive_raw"}


def test_summary_and_report_round_alike(project: Path) -> None:
    """83.851 is 83.9 in both; stored as 83.85 it would print as 83.8."""
    cells = results(("raw", "pjepa")).cells
    same = Results(tuple(replace(c, metrics=dict.fromkeys(c.metrics, 83.851)) for c in cells), ())
    _, _, rows = summary_table(metrics_json(same, None), "linear")
    assert {row[1] for row in (*rows, *headline_rows(same, "linear"))} == {"83.9"}
    assert len(rows) == 2


def test_differences_are_paired_and_agree_with_the_means(project: Path) -> None:
    found = results()
    names = {difference.name for difference in found.differences}
    assert {f"{name} - raw" for name in ALL if name != "raw"} <= names
    assert {"pjepa - random", "pjepa - time", "pjepa - history"} <= names
    assert "pjepa_segment - segment_mean" in names
    assert len(names) == len(found.differences)
    for difference in found.differences:
        pair = (difference.first, difference.second)
        first, second = (found.cell("linear", name).metrics["edit"] for name in pair)
        assert difference.intervals["edit"].mean == pytest.approx(first - second)


def test_streams_are_compared_where_they_differ(both: Results) -> None:
    found = {(d.probe, d.protocol) for d in both.differences}
    assert {("linear", "offline"), ("attentive", "offline"), ("attentive", "segments")} <= found
    assert not {("linear", "segments"), ("linear", "seconds")} & found
    streamed = both.difference("attentive", "pjepa", "raw", "segments")
    cells = (both.cell("attentive", name) for name in ("pjepa", "raw"))
    ours, theirs = (cell.streamed["segments"].metrics["acc"] for cell in cells)
    assert streamed.intervals["acc"].mean == pytest.approx(ours - theirs)
    for cell in both.cells:  # bold follows the interval of its own protocol
        for protocol in ("offline", "segments", "seconds"):
            gain = both.difference(cell.probe, cell.representation, "raw", protocol)
            if gain is not None:
                text = markdown.score_text(both, cell, "acc", protocol)
                assert text.startswith("**") == (gain.intervals["acc"].low > 0)


def test_the_headline_is_one_finding_with_its_interval(project: Path) -> None:
    found = results()
    gain = found.difference("linear", "pjepa", "raw")
    text = markdown.headline(found).replace("\N{NO-BREAK SPACE}", " ")
    acc = gain.intervals["acc"]
    assert f"**{acc.mean:+.1f} points (95 % interval {span(acc)})** against raw" in text
    assert "`history`, the best control" in text
    assert "P-JEPA was given the annotated boundaries" in text
    vague = replace(gain, intervals={**gain.intervals, "acc": Interval(1.0, -2.0, 4.0, 9)})
    few = replace(gain, intervals={**gain.intervals, "acc": Interval(1.0, -2.0, 4.0, 3)})
    for other, words in ((vague, "+4.0, no clear difference)"), (few, "3 groups: no interval)")):
        assert words in markdown.headline(replace(found, differences=(other,)))
    raw = tuple(cell for cell in found.cells if cell.representation == "raw")
    assert markdown.headline(replace(found, cells=raw, differences=())) == ""
    assert set(markdown.ABOUT) == set(KNOWN["representations"])  # every one is explained


def test_report_says_what_was_used(project: Path) -> None:
    found = results()
    text = report_text(found)
    for part in (
        "Metric convention `release`: accuracy and F1 are pooled over takes",
        "| `pjepa` | with annotated boundaries | annotated / annotated | none | 7.5 |",
        "| `time` | without annotated boundaries | none / none | none | rest of the take |",
        "### The supplement's 30-epoch fit",
        "- `raw`: the fits differ by",
        "#### All other differences\n\n| difference |",
    ):
        assert part in text
    order = ["*with annotated boundaries*", "`history`", "*without annotated boundaries*", "`time`"]
    starts = [line.split("|")[1].strip() for line in markdown.scores(found, "linear").splitlines()]
    assert [start for start in starts if start in order] == order
    whole = report_json(found, None)
    assert whole["takes"] == 6
    assert whole["cells"]["linear"]["random"]["provenance"]["boundaries_test"] == "annotated"
    assert "excludes_zero" in whole["differences"][0]["acc"]
    assert json.loads(json.dumps(whole)) == whole


def test_every_probe_is_shown_offline_and_streamed(both: Results) -> None:
    table = markdown.overview(both).splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert rows[0] == ["probe", "context", *(f"`{name}`" for name in THREE)]
    contexts = ["offline", "segments", "seconds"]
    assert [row[:2] for row in rows[2:]] == [[p, c] for p in both.probes for c in contexts]
    assert rows[2][2:] == rows[3][2:]  # the linear probe is causal
    cell = both.cell("attentive", "pjepa")
    assert rows[6][4].strip("*") == f"{cell.streamed['segments'].metrics['acc']:.1f}"
    text = report_text(both)
    assert text.count("the same as the offline scores") == 3  # 8 s are whole chunks of 4 tokens
    assert "Streamed, one annotated segment at a time (paper Table 3):" in text
    assert "up to 0.75 s ahead, to the end of its block." in text
    assert text.count("### The supplement's 30-epoch fit") == 1
    stored = report_json(both, None)["cells"]["attentive"]["raw"]["streamed"]
    assert stored["seconds"]["lookahead_s"] == pytest.approx(2.75)


def test_habits_upstream_labels_and_seeds_are_told(both: Results) -> None:
    folder = paths.cell("attentive", "raw")
    before = read_json(folder / "details.json")
    changed = before | {"selection": {"on": "test", "on_reported": True}}
    changed["provenance"] = before["provenance"] | {"train_labels": True}
    changed["labels"] = before["labels"] | {"label_fraction": 0.15, "variant": "paper"}
    write_json(folder / "details.json", changed)
    try:
        found = results(THREE, ("attentive",))
        text = report_text(found)
    finally:
        write_json(folder / "details.json", before)
    assert {"raw†", "pjepa"} < {row[0] for row in headline_rows(found, "attentive")}
    corner = "| representation (chosen on test; 15 % of train labels, paper variant) |"
    assert text.count(corner) == 3  # offline, by segments, what was given
    assert "†: labels went into the features" in text
    assert with_mark("x", both.of_probe("linear")) == "x"
    write_attentive_cell("smooth", COMMON.model_copy(update={"seeds": (0, 1)}))
    assert "Means over up to 2 runs." in report_text(results(("smooth",), ("attentive",)))


def test_names_cannot_break_a_table_and_numbers_are_on_the_right() -> None:
    rows = [[escaped("a|b"), "**+1.0 (+0.5 to +2.0)**", "no"], ["*group*", "", ""]]
    table = markdown_table(["x", "y", "z"], rows).splitlines()
    assert table[1:3] == ["| --- | ---: | --- |", r"| a\|b | **+1.0 (+0.5 to +2.0)** | no |"]
    text = plain_table("t", ["name", "acc"], [["raw", "5.0"], ["longer", "15.0"]])
    assert text.splitlines() == ["t", "name     acc", "raw      5.0", "longer  15.0"]


def test_the_proof_promises_only_where_order_is_kept(project: Path, tmp_path: Path) -> None:
    found = results()
    demo = demo_numbers(found, paths.DEMO_CEILINGS)
    raw = found.cell("linear", "raw")
    assert demo.gap_closed["raw"] == pytest.approx(100 * (raw.metrics["acc"] - 50) / 45)
    assert set(demo.gap_closed) == {"raw", "random", "history", "pjepa"}
    assert set(demo.primitive) == {"raw", "pjepa"}
    assert demo.primitive["raw"] > 80
    claims = proof_claims(found, replace(demo, primitive={"raw": 40.0}))
    holds = {claim.what: claim.holds for claim in claims}
    assert holds["pjepa - raw"] is True
    assert holds["pjepa - history"] is None
    assert holds["gap between the ceilings closed by pjepa"] is True
    assert claim_line(claims[0]) == (
        "true primitive read from raw: 40.0 % (at least 60: DOES NOT HOLD)"
    )
    shuffled = replace(demo, order="shuffled")
    assert {claim.holds for claim in proof_claims(found, shuffled)} == {None}
    assert demo_numbers(found, tmp_path / "none.json") is None
    wrong = tmp_path / "ceilings.json"
    write_json(wrong, read_json(paths.DEMO_CEILINGS) | {"split": "val"})
    with pytest.raises(InputError, match="computed on val, but cells report test"):
        demo_numbers(found, wrong)


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
    files = {p.relative_to(paths.REPORT).as_posix(): p for p in paths.REPORT.rglob("*.*")}
    pictures = [f"timelines/{name}.png" for name in ("best", "median", "take-4", "worst")]
    numbers = {"analyses.json", "maps.json", "report.json"}
    numbers |= {"plots/confusion.csv", "plots/progress.csv"}
    assert set(files) == {"index.html", "report.md", *numbers, *pictures}
    text = files["report.md"].read_text()
    assert "best of 6 takes by gain" in text
    assert all(f"]({name})" in text for name in pictures)
    assert b"matplotlib" not in files[pictures[0]].read_bytes().lower()  # no stamp of its version
    for name, path in files.items():
        assert path.read_bytes() == (tmp_path / "first" / name).read_bytes()
    assert paths.METRICS.read_bytes() == metrics
