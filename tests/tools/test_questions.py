"""What comes next, and how far along: cut takes, their features, answers and the demo's ceiling."""

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from pjepa.core.tables import Classes
from pjepa.features.config import ControlsConfig
from pjepa.features.controls import history
from pjepa.live.outlook import Outlook
from pjepa.storage.reading import read_json
from pjepa.streams.stream import Take
from pjepa.takes.demo.world import build_chain
from pjepa.tools import paths
from pjepa.tools.cli import app
from pjepa.tools.questions import (
    SHARES,
    bayes_next,
    encoded_cuts,
    next_steps,
    past,
    segment_mean,
    take_cuts,
)
from tests.worlds.token_projects import make_take, small_encoder, write_project

LENGTHS = [5, 1, 8, 4]
TAKE = make_take(LENGTHS)
CUTS = take_cuts(TAKE.segment)


def ended(take: Take, end: int) -> Take:
    """The take as if it ended there."""
    parts = (take.features, take.times, take.segment, take.offset)
    return Take(take.take_id, *(part[:end] for part in parts))


def test_a_cut_shows_its_share_of_the_segment_and_one_token_at_least():
    assert (CUTS.end - CUTS.start).reshape(-1, 4).tolist() == [
        [2, 3, 4, 5],
        [1, 1, 1, 1],
        [2, 4, 6, 8],
        [1, 2, 3, 4],
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"input_norm": "causal_center", "style_rank": 2},
        {"attention": "block_causal", "segments": "fixed"},
        {"attention": "token_causal"},
    ],
)
def test_a_representation_at_a_cut_is_that_of_a_take_that_ends_there(changes):
    encoder = small_encoder(block=4, **changes)
    last, mean = encoded_cuts(encoder, TAKE, CUTS)
    means, context = segment_mean(TAKE, CUTS), past(TAKE, CUTS)
    for row, (start, end) in enumerate(zip(CUTS.start, CUTS.end, strict=True)):
        part = ended(TAKE, end)
        segments = encoder.segments(part.features, part.segment, "the take")
        expected = encoder.encode(part.features, np.bincount(segments).tolist()).numpy()
        np.testing.assert_allclose(last[row], expected[-1], atol=1e-5)
        np.testing.assert_allclose(mean[row], expected[start:].mean(axis=0), atol=1e-5)
        np.testing.assert_allclose(means[row], TAKE.features[start:end].mean(axis=0), atol=1e-6)
        before = history(part, ControlsConfig(), 2.0)[-1]
        np.testing.assert_allclose(context[row], before, atol=1e-6)


@pytest.mark.parametrize(("background", "expected"), [(0, [2, -1, -1, -1]), (None, [0, 2, 0, -1])])
def test_the_next_step_leaps_over_background_and_is_not_asked_in_it(background, expected):
    labels = np.repeat([3, 0, 2, 0], LENGTHS)
    found = next_steps(labels, CUTS, background)
    assert found.reshape(-1, 4)[:, 0].tolist() == expected


@pytest.fixture(scope="module")
def circle(tmp_path_factory):
    """Four steps in a circle, two of which look the same, so that only the past tells them."""
    folder, takes, draw = tmp_path_factory.mktemp("circle"), {}, np.random.default_rng(0)
    looks = np.eye(6, dtype=np.float32)[[0, 1, 0, 2]]  # steps 1, 2, 3, 4
    for number in range(12):
        lengths = draw.integers(2, 6, 12).tolist()
        steps = (number + np.arange(12)) % 4
        take = make_take(lengths, f"t{number:02d}", number)
        features = np.repeat(looks[steps], lengths, axis=0) + 0.05 * take.features
        labels = np.repeat(steps + 1, lengths).astype(np.int32)
        takes[take.take_id] = (take.with_features(features), labels)
    classes = Classes(("background", "a", "b", "c", "d"), 0)
    names = tuple(takes)
    write_project(folder, takes, classes, ["train"] * 8 + ["test"] * 4, names[6:8])
    return folder


def test_who_knows_the_past_foresees_and_the_clock_tells_progress(circle, monkeypatch):
    """Both tables are printed, and what live runs load is left."""
    monkeypatch.chdir(circle)
    encoder = small_encoder(block=4)
    encoder.save_pretrained(paths.ENCODER)
    paths.PARAMS.write_text("threads: 1\n")
    torch.set_num_threads(2)
    done = CliRunner().invoke(app, ["questions"])
    assert done.exit_code == 0, done.output
    assert torch.get_num_threads() == 1  # the same numbers whatever the machine
    assert [line.split()[0] for line in done.stdout.splitlines()].count("history") == 2
    values = read_json(paths.QUESTIONS / "tables.json")
    rows = values["next at 100%"]
    assert rows["history"]["value"]["mean"] > 90
    assert 50 < rows["raw"]["value"]["mean"] < 85  # after the common look it has to guess
    assert rows["history"]["- raw"]["mean"] > 10
    shares = [values[f"next at {share:.0%}"]["raw"]["value"]["mean"] for share in SHARES]
    assert values["next at all"]["raw"]["value"]["mean"] == pytest.approx(np.mean(shares), abs=1e-3)
    assert "bayes" not in values["next at all"]  # only the demo's grammar is known
    assert values["progress"]["constant"]["value"]["mean"] == pytest.approx(25, abs=3)
    assert values["progress"]["clock"]["value"]["mean"] < 10  # takes are alike
    outlook = Outlook.load(encoder, paths.ENCODER, paths.QUESTIONS)
    assert outlook.answers(np.zeros((2, 16), np.float32), np.ones(2)).shape == (2, 3)


def test_the_filter_knows_what_follows_once_it_knows_where_it_is():
    chain = build_chain()
    steps = bayes_next(chain, np.array([0, 1, 2, -1, 3, 4, 5]))  # the first procedure, a pause
    assert steps[2] == steps[3] == chain.label[3]
    assert steps[-1] == chain.label[6]
