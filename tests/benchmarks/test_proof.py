from benchmarks.proof import accuracy_rows, claim_rows, markdown, proof_summary, verdict


def report(gain, low, acc):
    metrics = {"acc": acc, "acc_bg": acc, "edit": 10.0, "f1_50": 5.0}
    claim = {"what": "pjepa - raw", "unit": "points", "needed": 15.0, "value": gain}
    return {
        "cells": {"linear": {"raw": {"metrics": metrics}}},
        "demo": {
            "ceilings": {"appearance": 40.0, "history": 90.0},
            "claims": [
                {**claim, "interval": {"low": low, "high": gain + 5, "excludes_zero": low > 0}},
                {"what": "gap", "unit": "%", "needed": None, "value": 3.0, "interval": None},
            ],
        },
    }


def test_medians_and_worlds_above_zero():
    reports = [report(20, 12, 30.0), report(10, -2, 34.0), report(18, 9, 32.0)]
    gain, gap = claim_rows(reports)
    assert (gain["median"], gain["above_zero"]) == (18, 2)
    assert gain["interval"] == [9, 23]
    assert verdict(gain, 3) == "holds"
    assert "interval" not in gap
    assert verdict(gap, 3) == ""
    rows = accuracy_rows(reports)
    assert rows["raw"]["acc"] == 32.0
    assert rows["ceiling: history"]["acc"] == 90.0


def test_a_promise_needs_the_median_and_most_intervals():
    weak = [report(20, -1, 30.0), report(20, -1, 30.0), report(20, 5, 30.0)]
    assert verdict(claim_rows(weak)[0], 3) == "does not hold"
    small = [report(14, 10, 30.0)] * 3
    assert verdict(claim_rows(small)[0], 3) == "does not hold"


def test_the_text_says_whether_shuffling_halves_the_gain():
    summary = proof_summary({key: [report(20, 12, 30.0)] for key in ("procedure", "shuffled")})
    assert summary["gain"] == {"procedure": 20, "shuffled": 20}
    for shuffled, words in ((6.0, "more than half"), (15.0, "less than half")):
        text = markdown({**summary, "gain": {"procedure": 20.0, "shuffled": shuffled}})
        assert words in text
    assert "no gain to lose" in markdown({**summary, "gain": {"procedure": -1.0, "shuffled": 0.0}})
