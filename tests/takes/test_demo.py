import hashlib

import numpy as np
import pandas as pd
import pytest

from pjepa.core.tables import Classes
from pjepa.takes.config import DataConfig, DemoConfig
from pjepa.takes.demo.source import demo_scripts, demo_splits, film
from pjepa.takes.demo.world import (
    NAMES,
    PRIMITIVES,
    PROCEDURES,
    STEPS,
    build_chain,
    ceilings,
    filter_guesses,
)
from pjepa.takes.source import Annotation, Source, held_groups, take_row
from pjepa.video.reader import open_video

CONFIG = DataConfig(demo=DemoConfig(takes=60))


def test_the_world_is_what_the_readme_says():
    assert len(PROCEDURES) >= 6
    assert all(8 <= len(p.steps) <= 12 for p in PROCEDURES)
    meanings = pd.Series(STEPS).value_counts()
    assert (meanings[[p for p in PRIMITIVES if p != "idle"]] == 3).all()
    for procedure in PROCEDURES:
        shown = [STEPS[step] for step in procedure.steps]
        assert sum(shown.count(p) > 1 for p in set(shown)) >= 4, procedure.name
    looks = {e.label: e.primitive for s in demo_scripts(CONFIG) for e in s.events}
    assert len(looks) == len(NAMES)
    assert all(PRIMITIVES[p] == STEPS[NAMES[label]] for label, p in looks.items())


def test_takes_have_the_promised_length_and_vary():
    scripts = demo_scripts(CONFIG)
    lengths = [s.duration_s for s in scripts]
    assert min(lengths) >= 40
    assert max(lengths) <= 90
    firsts = {(s.procedure, s.events[0].label) for s in scripts}
    assert len(firsts) > 20  # takes start anywhere in their procedure
    assert demo_scripts(CONFIG) == scripts
    assert demo_scripts(CONFIG.model_copy(update={"seed": 1})) != scripts
    table = pd.DataFrame({"task": [s.procedure for s in scripts], "split": demo_splits(CONFIG)})
    assert (table.groupby("task")["split"].nunique() == 3).all()


def test_shuffled_keeps_every_segment_and_only_breaks_the_order():
    scripts = demo_scripts(CONFIG)
    shuffled = demo_scripts(CONFIG.model_copy(update={"order": "shuffled"}))

    def bag(script):
        return sorted((e.state, e.end_s - e.start_s) for e in script.events)

    assert all(bag(a) == bag(b) for a, b in zip(scripts, shuffled, strict=True))
    assert sum(a == b for a, b in zip(scripts, shuffled, strict=True)) == 0


def brute_force_guess(chain, script):
    """The filter once more, by summing over every path of the last steps explicitly."""
    paths = {s: p for s, p in enumerate(chain.start) if p > 0}
    answers = []
    for number, event in enumerate(e for e in script.events if e.state >= 0):
        if number:
            moved = {}
            for state, p in paths.items():
                for to in chain.transition[state].nonzero()[0]:
                    moved[to] = moved.get(to, 0) + p * chain.transition[state, to]
            paths = moved
        paths = {s: p for s, p in paths.items() if chain.primitive[s] == event.primitive}
        total = sum(paths.values())
        paths = {s: p / total for s, p in paths.items()}
        score = {}
        for state, p in paths.items():
            score[chain.label[state]] = score.get(chain.label[state], 0) + p
        answers.append(max(sorted(score), key=score.get))
    return answers


def test_history_ceiling_is_the_bayes_filter():
    chain = build_chain()
    guess = filter_guesses(chain)
    for script in demo_scripts(CONFIG)[:8]:
        found = [g for g, e in zip(guess(script), script.events, strict=True) if e.state >= 0]
        assert found == brute_force_guess(chain, script)


def test_ceilings_are_ordered_and_shuffling_lowers_the_upper_one():
    chain = build_chain()
    scripts = demo_scripts(CONFIG)
    values = ceilings(scripts, chain, "procedure")
    assert values["appearance"]["acc"] + 30 < values["history"]["acc"] < 100
    shuffled = demo_scripts(CONFIG.model_copy(update={"order": "shuffled"}))
    broken = ceilings(shuffled, chain, "shuffled")
    assert broken["appearance"]["acc"] == pytest.approx(values["appearance"]["acc"])
    assert broken["history"]["acc"] < values["history"]["acc"] - 25


def test_video_is_real_deterministic_and_lasts_as_scripted(tmp_path):
    small = DataConfig(demo=DemoConfig(takes=6, min_s=4, max_s=9))
    script = demo_scripts(small)[0]
    for name in ("a", "b"):
        film(script, tmp_path / f"{name}.mp4", 12, 96, np.random.default_rng(5))
    one, two = ((tmp_path / f"{n}.mp4").read_bytes() for n in ("a", "b"))
    assert hashlib.sha256(one).digest() == hashlib.sha256(two).digest()
    video = open_video(tmp_path / "a.mp4")
    assert video.info.duration_s == pytest.approx(script.duration_s, abs=0.1)
    frames = video.frames(np.arange(0, script.duration_s, 0.5))
    assert frames.shape[1:] == (96, 96, 3)
    assert frames.std() > 20  # something is to be seen
    assert np.abs(np.diff(frames.astype(int), axis=0)).mean() > 1  # and it moves


def test_holdout_takes_whole_groups_and_leaves_every_class():
    splits = ["train"] * 16 + ["test"] * 4
    takes = [take_row(f"t{i}", "demo", s, group=f"g{i // 2}") for i, s in enumerate(splits)]
    labels = [0, 1] * 7 + [2, 3] + [0, 1] * 2
    segments = [Annotation(f"t{i}", 0.0, 1.0, label) for i, label in enumerate(labels)]
    source = Source([], takes, segments, Classes(("a", "b", "c", "d"), None))
    held = held_groups(source, 0.25, 0)
    assert len(held) == 2
    assert "g7" not in held  # the only group that shows classes 2 and 3
    assert held <= {take["group"] for take in takes if take["split"] == "train"}
    assert held == held_groups(source, 0.25, 0)
