"""The page: data stays text, sizes hold, what is left out is said."""

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pjepa.core.tables import read_videos
from pjepa.core.text import escaped, markdown_table
from pjepa.report.config import ReportConfig
from pjepa.report.content import ReportRun, run_page, write_unlabelled
from pjepa.report.frames import picture_times, take_sheets
from pjepa.report.page import Collapsible, Columns, Page, Widget, markdown_html, script_json
from pjepa.report.provenance import read_origin
from pjepa.report.results import TakePrediction, read_predictions, read_results
from pjepa.report.widgets import read_curves, score_data, span_data
from pjepa.tools import paths
from stages.report import read_run, tracked_code
from tests.report.conftest import HOSTILE

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def read(built: Path) -> ReportRun:
    config = ReportConfig(bootstrap=10)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(built)
        results = read_results(("linear",), ("raw", "pjepa", "history"), paths.cell, config)
        return read_run(results, None, config)


def page_data(text: str) -> dict:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found
    return json.loads(found[1])


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_escaped_text_is_what_the_reader_sees(text: str) -> None:
    plain = " ".join(text.split())
    for mark, tag in (("", "p"), ("### ", "h3")):
        shown = markdown_html(f"{mark}x {escaped(text)} y")
        shown = shown.removeprefix(f"<{tag}>x ").removesuffix(f" y</{tag}>\n")
        assert "<" not in shown
        assert unescape(shown).split() == plain.split()


def test_our_markdown_becomes_html() -> None:
    table = markdown_table(["a", "`b`"], [["*group*", ""], ["**x**", escaped("1|2")]])
    found = markdown_html(f"## Title\n\ntext `code`\n\n- one\n- two\n\n{table}\n\n![c](d.png)")
    text = re.sub(r">\s+<", "><", found)
    assert "<h2>Title</h2>" in text
    assert "<p>text <code>code</code></p>" in text
    assert "<ul><li>one</li><li>two</li></ul>" in text
    assert '<tr class="group"><th scope="rowgroup" colspan="2"><em>group</em></th></tr>' in text
    row = '<th scope="row"><strong>x</strong></th><td style="text-align:right">1|2</td>'
    assert row in text
    assert "d.png" not in text
    assert "<b>" not in markdown_html("<b>bold</b>\n\n<script>alert(1)</script>")
    assert "href" not in markdown_html("[x](javascript:alert(1))")


def test_nothing_in_the_data_can_end_its_element() -> None:
    name = "</script><!-- {{ body }} {% raw %} \u2028 é"
    assert script_json(name).isascii()
    page = Page(name, name, escaped(name))
    folds = [Collapsible(name, name, markdown=False), Collapsible(name, escaped(name))]
    page.add("a", name, [escaped(name), Columns([Widget("lines", name), *folds])])
    page.data["x"] = name
    whole = page.html()
    assert whole.count("</script>") == 2
    assert whole.count("<!--") == 0
    assert page_data(whole) == {"x": name}
    assert page.markdown("T").startswith(f"# T\n\n{escaped(name)}\n\n## ")
    assert page.markdown("T", without=("a",)) == f"# T\n\n{escaped(name)}\n"


def test_report_md_has_every_text_of_the_page_but_no_bare_heading() -> None:
    page = Page("title")
    chart = page.widget("lines", "key", [])
    page.add("a", "A", [Columns(["### One\n\ntext", "### Two\n\nmore"]), "### Chart", chart])
    page.add("b", "B", ["### Fold", Collapsible("Title", "| x |"), "### Last", chart])
    lines = [line for line in page.markdown("T").splitlines() if line]
    assert lines[:6] == ["# T", "## A", "### One", "text", "### Two", "more"]
    assert lines[6:] == ["## B", "### Fold", "#### Title", "| x |"]


def test_the_page_needs_nothing_else(read: ReportRun, built: Path) -> None:
    text = run_page(read).html()
    assert HOSTILE not in text
    assert page_data(text)["classes"]["names"][4] == HOSTILE
    links = re.findall(r"""(?:src|href)=["']([^"']*)""", text)
    assert all(link.startswith(("#", "data:")) for link in links)
    addresses = set(re.findall(r"https?://[^\s\"'<]+", text))
    assert addresses <= {"http://www.w3.org/2000/svg"}
    assert str(built) not in text


def test_what_does_not_fit_is_left_out_and_said(read: ReportRun) -> None:
    assert len(read.sheets) == 4  # of six takes, one file is missing and one has features only
    takes = run_page(read).data["timelines"]["takes"]
    assert (len(takes), sum("frames" in take for take in takes)) == (6, 4)
    page = run_page(replace(read, config=ReportConfig(takes=3, bootstrap=10)))
    assert "**3 of 6 takes**" in str(page.sections[1].parts[0])
    reasons = [take["why"].split()[0] for take in page.data["timelines"]["takes"]]
    assert reasons == ["best", "median", "worst"]
    tight = ReportConfig.model_construct(**{**read.config.model_dump(), "page_mb": 0.04})
    small = run_page(replace(read, config=tight))
    assert not any("frames" in take for take in small.data["timelines"]["takes"])
    off = replace(read, sheets={}, config=ReportConfig(frames=0))
    assert "Pictures are off" in str(run_page(off).sections[1].parts[0])
    none = replace(read, sheets={})
    assert "No videos were found" in str(run_page(none).sections[1].parts[0])


def test_spans_survive_their_encoding_and_scores_are_rounded_once(read: ReportRun) -> None:
    times = np.array([0.5, 0.75, 1.0, 9.0, 9.25])
    labels = np.array([1, 1, 2, 2, 2])
    take = TakePrediction(times, labels, labels, np.array([0.2, 0.4, 1, 0.5, 0.5]))
    flat = span_data(take.spans(take.predicted), take.scores)
    assert flat == [1, 0, 50, 30, 2, 0, 25, 100, 2, 775, 50, 50]
    assert span_data(take.spans(take.labels), None)[3::4] == [-1, -1, -1]
    cell = replace(read.results.cells[0], metrics={"acc": 83.2472})  # 83.25 would be shown as 83.3
    assert score_data([cell], None)["rows"][0][2] == 83.2472


def test_pictures_show_every_segment_before_a_second_of_one() -> None:
    times = np.arange(40) / 4
    labels = np.repeat([1, 2, 3], [20, 4, 16])
    take = TakePrediction(times, labels, labels, np.ones(40))
    assert picture_times(take, 3) == [2.5, 5.5, 8.0]
    assert picture_times(take, 2) == [2.5, 8.0]
    more = picture_times(take, 8)
    assert len(more) == 8
    assert set(picture_times(take, 3)) <= set(more)
    assert len(picture_times(take, 500)) < 80


def test_a_broken_video_costs_its_pictures_only(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    takes = read_predictions(paths.cell("linear", "raw"))
    videos = {row.take_id: row for row in read_videos(paths.VIDEOS_TABLE)}
    first, *others = takes
    videos[first] = replace(videos[first], video=str(paths.CLASSES))
    found = take_sheets(videos, takes, 4, tmp_path)
    assert list(found) == others[:3]  # the last two have no video
    assert f"{paths.CLASSES}: cannot be decoded" in capsys.readouterr().err
    stored = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert take_sheets(videos, takes, 4, tmp_path) == found
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == stored


def test_the_stage_tracks_its_code_and_every_section(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stage = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]["report"]
    params = yaml.safe_load((ROOT / "params.yaml").read_text())
    del params["machine"]  # where it ran is no part of the experiment
    del params["probe"]  # shown as the cells recorded it
    assert set(stage["params"]) == set(params)  # the page shows them all
    monkeypatch.chdir(ROOT)
    code = [path.as_posix() for path in tracked_code()]
    assert {"stages/report.py", "pjepa/report/assets/page.css"} <= set(code)
    monkeypatch.chdir(tmp_path)
    assert tracked_code() == []


def test_without_labels_there_is_still_a_page(project: Path, tmp_path: Path) -> None:
    made_from = read_origin({"seed": 7}, [paths.VIDEOS_TABLE], [], None)
    curves, folder = read_curves(paths.PRETRAIN_RESULTS), tmp_path / "report"
    write_unlabelled("no take <b> has labels", curves, made_from, folder)
    text = (folder / "index.html").read_text()
    assert "no take &lt;b&gt; has labels" in text
    assert page_data(text)["curves"][0]["title"] == "loss"
    assert paths.VIDEOS_TABLE.as_posix() in text
    assert "seed: 7" in text
    assert r"no take \<b\> has labels" in (folder / "report.md").read_text()
