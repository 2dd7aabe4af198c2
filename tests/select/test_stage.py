"""`select` finds the snapshot that is best by construction, and reads only the labels it may."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from pjepa.core.tables import TAKES, pretraining_takes, read_takes, write_table
from pjepa.metrics.segmentation import segmentation_scores
from pjepa.model.encoder import ProcedureEncoder
from pjepa.select.familiar import read_familiar
from pjepa.select.selection import Judge, judged_takes, selection_score
from pjepa.streams.stream import read_labels, write_labels
from pjepa.tools.paths import CLASSES, ENCODER, LABELS, SNAPSHOTS, TAKES_TABLE
from pjepa.tools.stage import stage_main
from stages.select import run
from tests.select.judged import relabelled, takes_of, write_params, write_snapshot

GOLDEN = Path(__file__).parents[1] / "golden" / "pjepa" / "metrics.json"


def chosen(**settings):
    if settings:
        write_params(select=settings)
    run()
    return json.loads((ENCODER / "selection.json").read_text())


def test_last_needs_no_labels(project):
    for path in (LABELS, CLASSES):
        path.unlink()
    write_params()
    assert chosen() == {
        "by": "last", "epoch": 100, "metric": None, "scores": {}, "selection_labels": "none"
    }  # fmt: skip
    expected = (SNAPSHOTS / "00100" / "model.safetensors").read_bytes()
    assert (ENCODER / "model.safetensors").read_bytes() == expected
    assert (ENCODER / "config.json").exists()
    known, seen = read_familiar(ENCODER), pretraining_takes(read_takes(TAKES_TABLE))
    assert known.takes == len(seen)


@pytest.mark.parametrize(("by", "best"), [("holdout", 20), ("val", 40)])
@pytest.mark.parametrize("metric", ["acc", "combined"])
def test_the_best_snapshot_is_chosen(project, by, best, metric, capsys):
    found = chosen(by=by, metric=metric)
    assert (found["by"], found["metric"], found["epoch"]) == (by, metric, best)
    assert found["selection_labels"] == by
    scores = found["scores"]
    assert list(scores) == ["20", "40", "100"]
    assert scores[str(best)] > (95 if metric == "acc" else 5)
    assert all(scores[e] < 0.7 * scores[str(best)] for e in scores if e != str(best))
    weights = (ENCODER / "model.safetensors").read_bytes()
    assert weights == (SNAPSHOTS / f"{best:05d}" / "model.safetensors").read_bytes()
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "epoch 40:" in line] == [lines[1]]
    assert not list(Path(".dvc/tmp/pjepa/select").glob("*/*.json"))


@pytest.mark.parametrize(("by", "unseen"), [("holdout", ("val", "test")), ("val", ("test",))])
def test_other_labels_do_not_matter(project, by, unseen):
    before = chosen(by=by)
    relabelled(*unseen)
    assert chosen() == before
    relabelled(by)
    assert chosen()["scores"] != before["scores"]


def test_the_hold_out_is_apart_from_everything_that_is_fitted(project):
    takes, labels = read_takes(TAKES_TABLE), read_labels(LABELS)
    for by in ("holdout", "val"):
        judged = judged_takes(takes, labels, by)
        assert set(judged.fit) == takes_of("train")
        assert set(judged.tune) == takes_of("holdout")
        assert set(judged.scored) == takes_of(by)
        assert not set(judged.tune + judged.scored) & pretraining_takes(takes)


def test_without_a_hold_out_val_chooses_the_penalty_too(project):
    takes = read_takes(TAKES_TABLE)
    rows = takes[~takes["holdout"]].to_dict("records")
    write_table(TAKES_TABLE, rows, TAKES)
    assert chosen(by="val")["epoch"] == 40


def test_equal_scores_go_to_the_later_epoch(project):
    for epoch in (20, 40):
        write_snapshot(epoch, None)
    assert chosen(by="holdout")["epoch"] == 100


def test_a_killed_run_goes_on_and_ends_in_the_same_bytes(project, monkeypatch):
    chosen(by="holdout")
    expected = (ENCODER / "selection.json").read_bytes()
    scored = []
    score = Judge.score

    def interrupted(judge, represent):
        if len(scored) == 2:
            scored.append("killed")
            raise KeyboardInterrupt
        scored.append("whole")
        return score(judge, represent)

    monkeypatch.setattr(Judge, "score", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run()
    run()
    assert scored == ["whole", "whole", "killed", "whole"]
    assert (ENCODER / "selection.json").read_bytes() == expected


def test_an_initial_encoder_keeps_its_mark(project):
    """What was chosen on val before pretraining is not unmarked by choosing the last epoch."""
    (SNAPSHOTS / "origin.json").write_text('{"selection_labels": "val"}')
    for by in ("last", "holdout"):
        assert chosen(by=by)["selection_labels"] == "val"


def error(capsys):
    with pytest.raises(SystemExit):
        stage_main(run)
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")][-1]


def test_bad_input_is_one_line(project, capsys):
    write_params(select={"by": "val"})
    LABELS.rename("kept")
    assert "labels.parquet: no such file; run `dvc repro tokens`" in error(capsys)
    Path("kept").rename(LABELS)
    encoder = ProcedureEncoder.from_pretrained(SNAPSHOTS / "00040")
    torch.nn.init.constant_(encoder.norm.bias, float("nan"))
    encoder.save_pretrained(SNAPSHOTS / "00040")
    assert "take t0: its features are not finite" in error(capsys)
    takes = read_takes(TAKES_TABLE)
    for by, gone in (("holdout", takes["holdout"]), ("val", takes["split"] == "val")):
        write_params(select={"by": by})
        write_table(TAKES_TABLE, takes[~gone].to_dict("records"), TAKES)
        expected = f"error: select.by {by}: no {by} take has labels; use select.by=last"
        assert error(capsys) == expected
    write_labels(LABELS, [(take, np.zeros(40), np.full(40, -1)) for take in takes["take_id"]])
    assert "no train take has labels" in error(capsys)
    for path in SNAPSHOTS.iterdir():
        path.rename(SNAPSHOTS / f"old-{path.name}")
    assert "no snapshot; run `dvc repro pretrain`" in error(capsys)


def test_combined_is_the_releases_scalar():
    for case in json.loads(GOLDEN.read_text()):
        truths, predictions = case["ground_truth"], case["predictions"]
        background = None if case["bg"] < 0 else case["bg"]
        metrics = segmentation_scores(
            [truths[take] for take in truths], [predictions[take] for take in truths], background
        )
        assert selection_score(metrics, "combined") == pytest.approx(case["combined"])
        assert selection_score(metrics, "acc") == pytest.approx(
            100 * case["result"]["frame_accuracy_excluding_idle"]
        )
