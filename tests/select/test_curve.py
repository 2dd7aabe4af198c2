"""`curve` scores snapshots on held-out train groups, says why it cannot, and chooses nothing."""

import csv
from pathlib import Path

import pytest
import yaml

from pjepa.core import machine
from pjepa.core.tables import TAKES, read_takes, write_table
from pjepa.select.curve import read_curve
from pjepa.tools import paths
from stages.curve import run
from tests.select.judged import relabelled, write_params

ROOT = Path(__file__).parents[2]


def curve(**settings):
    write_params(curve=settings)
    run()
    return read_curve(paths.CURVE / "curve.json")


def test_the_curve_shows_which_snapshot_reads_the_hold_out(project):
    found = curve()
    assert list(found.scores) == [20, 40, 100]
    assert found.scores[20] > 95  # by construction: it passes on the channels that tell
    assert max(found.scores[40], found.scores[100]) < 70
    # the stream has those channels too, beside others that do not tell
    assert 70 < found.references["raw"] < found.scores[20]
    assert set(found.references) == {"raw", "random"}
    assert (found.fitted, found.scored, found.why_not) == (6, 2, "")
    with (paths.CURVE / "curve.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [float(row["pjepa"]) for row in rows] == list(found.scores.values())
    assert {float(row["raw"]) for row in rows} == {found.references["raw"]}
    assert not paths.ENCODER.exists()


def test_only_train_labels_matter_and_not_how_many_snapshots_are_scored_at_once(
    project, monkeypatch
):
    monkeypatch.setattr(machine, "cores", lambda: 2)
    monkeypatch.setenv("PJEPA_WORKERS", "1")
    before = curve()
    monkeypatch.setenv("PJEPA_WORKERS", "2")
    relabelled("val", "test")
    assert curve() == before
    relabelled("holdout")
    assert curve().scores != before.scores


@pytest.mark.parametrize(
    ("settings", "held", "why"),
    [
        ({"snapshots": 0}, True, "curve.snapshots is 0"),
        ({"snapshots": 1}, True, "fewer than two snapshots"),
        ({}, False, "no labels"),
    ],
)
def test_without_a_curve_it_says_why(project, settings, held, why, capsys):
    if not held:
        rows = read_takes(paths.TAKES_TABLE)
        write_table(paths.TAKES_TABLE, rows.assign(holdout=False).to_dict("records"), TAKES)
    found = curve(**settings)
    assert why in found.why_not
    assert why in capsys.readouterr().err
    assert not found.scores
    assert (paths.CURVE / "curve.csv").read_text() == "epoch,pjepa,raw,random\n"


def test_work_is_bounded(project):
    found = curve(takes=3, snapshots=2)
    assert (list(found.scores), found.fitted) == ([40, 100], 3)


def test_its_labels_reach_the_report_alone():
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    out = paths.CURVE.as_posix()
    assert stages["curve"]["outs"] == [out]
    readers = {n for n, s in stages.items() if any(d.startswith(out) for d in s["deps"])}
    assert readers == {"report"}
