from benchmarks.proof import accuracy_rows, claim_rows, verdict


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


def test_a_promise_needs_the_median_and_most_intervals():
    gain, gap = claim_rows([report(20, 12, 30.0), report(10, -2, 34.0), report(18, 9, 32.0)])
    assert (gain["median"], gain["above_zero"], gain["interval"]) == (18, 2, [9, 23])
    assert (verdict(gain, 3), verdict(gap, 3)) == ("holds", "")
    unsure = claim_rows([report(20, -1, 30.0), report(20, -1, 30.0), report(20, 5, 30.0)])
    small = claim_rows([report(14, 10, 30.0)] * 3)
    assert [verdict(rows[0], 3) for rows in (unsure, small)] == ["does not hold"] * 2


def test_accuracies_are_medians_over_worlds_beside_the_ceilings():
    rows = accuracy_rows([report(20, 12, 30.0), report(10, -2, 34.0), report(18, 9, 32.0)])
    assert (rows["raw"]["acc"], rows["ceiling: history"]["acc"]) == (32.0, 90.0)
