"""Held-out train groups: drawn once, for every choice that must not see val or test."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd


def draw_holdout(takes: pd.DataFrame, segments: pd.DataFrame, share: float, seed: int) -> set[str]:
    """Return about `share` of the train groups such that the rest still covers every class."""
    return drawn_groups(takes, segments, share, [seed, 0x401D])


def drawn_groups(
    takes: pd.DataFrame, segments: pd.DataFrame, share: float, seed: Sequence[int]
) -> set[str]:
    """Return about `share` of the train groups (recordings or participants, never single takes)."""
    train = takes[takes["split"] == "train"]
    group_of = dict(zip(train["take_id"], train["group"], strict=True))
    labelled = segments[segments["take_id"].isin(group_of)]
    classes: dict[str, set[int]] = {group: set() for group in train["group"]}
    for take_id, label in zip(labelled["take_id"], labelled["label"], strict=True):
        classes[group_of[take_id]].add(int(label))
    groups = sorted(classes)
    wanted = max(1, round(share * len(groups))) if len(groups) > 1 else 0
    return _covering_draw(groups, classes, wanted, np.random.default_rng(list(seed)))


def _covering_draw(
    groups: list[str], classes: dict[str, set[int]], wanted: int, rng: np.random.Generator
) -> set[str]:
    """Return groups in random order, chosen while another group still covers each class."""
    count: dict[int, int] = {}
    for shown in classes.values():
        for label in shown:
            count[label] = count.get(label, 0) + 1
    held: set[str] = set()
    for place in rng.permutation(len(groups)):
        shown = classes[groups[place]]
        if len(held) < wanted and all(count[label] > 1 for label in shown):
            held.add(groups[place])
            for label in shown:
                count[label] -= 1
    return held
