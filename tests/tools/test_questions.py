"""What comes next, and how far along: cut takes, their features, answers and the demo's ceiling."""

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from pjepa.core.tables import TAKES, Classes, write_classes, write_table
from pjepa.features.config import ControlsConfig
from pjepa.features.controls import history
from pjepa.live.outlook import Outlook, Ridge
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder
from pjepa.probes.base.scoring import Roles
from pjepa.probes.linear.config import LinearConfig
from pjepa.storage.reading import read_json
from pjepa.streams.provenance import StreamInfo
from pjepa.streams.stream import StreamReader, StreamWriter, Take, write_labels
from pjepa.takes.demo.world import build_chain
from pjepa.tools import paths
from pjepa.tools.cli import app
from pjepa.tools.questions import (
    SHARES,
    bayes_next,
    build_questions,
    encoded_cuts,
    next_answers,
    next_steps,
    past,
    progress_answers,
    score_answers,
    segment_mean,
    take_cuts,
)

LENGTHS = [5, 1, 8, 4]


def make_take(lengths=LENGTHS, seed=0, width=6, name="take"):
    count = sum(lengths)
    features = np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)
    segment = np.repeat(np.arange(len(lengths)), lengths).astype(np.int32)
    offset = np.concatenate([np.arange(n) for n in lengths]).astype(np.int32)
    return Take(name, features, np.arange(count) / 2.0, segment, offset)


def small_encoder(**changes):
    torch.manual_seed(0)
    shape = {"width": 16, "depth": 2, "heads": 2, "block": 4, "attention": "clip_causal"}
    return ProcedureEncoder(EncoderConfig(d_in=6, **{**shape, **changes})).eval()


def ended(take, end):
    """The take as if it ended there."""
    parts = (take.features, take.times, take.segment, take.offset)
    return Take(take.take_id, *(part[:end] for part in parts))


def test_a_cut_shows_its_share_of_the_segment_and_one_token_at_least():
    cuts = take_cuts(make_take().segment)
    assert cuts.share[:4].tolist() == list(SHARES)
    assert (cuts.end - cuts.start).reshape(-1, 4).tolist() == [
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
def test_the_encoder_at_a_cut_is_that_of_a_take_that_ends_there(changes):
    encoder, take = small_encoder(**changes), make_take()
    cuts = take_cuts(take.segment)
    last, mean = encoded_cuts(encoder, take, cuts)
    for place, (start, end) in enumerate(zip(cuts.start, cuts.end, strict=True)):
        part = ended(take, end)
        segments = encoder.segments(part.features, part.segment, "the take")
        lengths = np.bincount(segments).tolist()
        expected = encoder.encode(part.features, lengths).numpy()
        np.testing.assert_allclose(last[place], expected[-1], atol=1e-5)
        np.testing.assert_allclose(mean[place], expected[start:].mean(axis=0), atol=1e-5)


def test_controls_at_a_cut_are_those_of_a_take_that_ends_there():
    take = make_take()
    cuts = take_cuts(take.segment)
    means, context = segment_mean(take, cuts), past(take, cuts)
    for place, (start, end) in enumerate(zip(cuts.start, cuts.end, strict=True)):
        np.testing.assert_allclose(means[place], take.features[start:end].mean(axis=0), atol=1e-6)
        expected = history(ended(take, end), ControlsConfig(), 2.0)[-1]
        np.testing.assert_allclose(context[place], expected, atol=1e-6)


def test_the_next_step_leaps_over_background_and_is_not_asked_in_it():
    labels = np.repeat([3, 0, 2, 0], LENGTHS)
    found = next_steps(labels, take_cuts(make_take().segment), background=0)
    assert found.reshape(-1, 4)[:, 0].tolist() == [2, -1, -1, -1]
    kept = next_steps(labels, take_cuts(make_take().segment), background=None)
    assert kept.reshape(-1, 4)[:, 0].tolist() == [0, 2, 0, -1]


def write_circle(path):
    """Four steps in a circle, two of which look the same, so that only the past tells them."""
    info = StreamInfo(source="circle", fps=2.0, width=6)
    labels, draw = {}, np.random.default_rng(0)
    looks = np.eye(6, dtype=np.float32)[[0, 1, 0, 2]]  # steps 1, 2, 3, 4
    with StreamWriter(path, info, "float32") as writer:
        for number in range(12):
            lengths = draw.integers(2, 6, 12).tolist()
            steps = (number + np.arange(12)) % 4
            take = make_take(lengths, number, name=f"t{number:02d}")
            shown = np.repeat(looks[steps], lengths, axis=0)
            writer.write(take.with_features(shown + 0.05 * take.features))
            labels[take.take_id] = np.repeat(steps + 1, lengths).astype(np.int32)
    return labels


@pytest.fixture(scope="module")
def circle(tmp_path_factory):
    path = tmp_path_factory.mktemp("circle") / "stream.parquet"
    labels = write_circle(path)
    names = tuple(labels)
    roles = Roles(names[:6], names[6:8], names[8:], "test", {name: name for name in names})
    world = build_questions(StreamReader(path), labels, 0, names, {"pjepa": small_encoder()})
    return world, roles


def test_who_knows_the_past_foresees_and_the_clock_tells_progress(circle, tmp_path):
    world, roles = circle
    steps = {
        name: guess for name, (_, guess) in next_answers(world, roles, 5, LinearConfig()).items()
    }
    ridges, times = progress_answers(world, roles)
    answers = score_answers(world, roles, steps, times)
    rows = answers.next["100%"]
    assert rows["history"]["value"].mean > 90
    assert 50 < rows["raw"]["value"].mean < 85  # after the common look it has to guess
    assert rows["history"]["- raw"].mean > 10
    assert rows["history"]["- raw"].groups == 4
    right, asked_for = 0, 0
    for take in roles.reported:
        here = (world.next[take] >= 0) & (world.cuts[take].share == 0.25)
        right += int((steps["raw"][take] == world.next[take])[here].sum())
        asked_for += int(here.sum())
    assert asked_for == 4 * 11
    assert answers.next["25%"]["raw"]["value"].mean == pytest.approx(100 * right / asked_for)
    shares = [answers.next[f"{share:.0%}"]["raw"]["value"].mean for share in SHARES]
    assert answers.next["all"]["raw"]["value"].mean == pytest.approx(np.mean(shares))
    assert answers.progress["constant"]["value"].mean == pytest.approx(25, abs=3)
    assert answers.progress["clock"]["value"].mean < 10  # takes are alike
    ridges["pjepa"].save(tmp_path)
    x = np.concatenate([world.clock["t08"], world.features["pjepa"]["t08"]], axis=1)
    np.testing.assert_array_equal(Ridge.load(tmp_path).predict(x), ridges["pjepa"].predict(x))


@pytest.mark.slow
def test_the_command_prints_both_tables_and_leaves_what_live_runs_load(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths.TOKENS.mkdir(parents=True)
    labels = write_circle(paths.STREAM)
    write_labels(paths.LABELS, [(t, np.arange(len(x)) / 2.0, x) for t, x in labels.items()])
    text = dict.fromkeys(("dataset", "task", "recording", "participant", "view"), "")
    rows = [
        {
            "take_id": take,
            "group": take,
            "split": "train" if n < 8 else "test",
            "holdout": n in (6, 7),
        }
        for n, take in enumerate(labels)
    ]
    write_table(paths.TAKES_TABLE, [row | text for row in rows], TAKES)
    write_classes(paths.CLASSES, Classes(("background", "a", "b", "c", "d"), 0))
    encoder = small_encoder()
    encoder.save_pretrained(paths.ENCODER)
    paths.PARAMS.write_text("threads: 1\n")
    torch.set_num_threads(2)
    done = CliRunner().invoke(app, ["questions"])
    assert done.exit_code == 0, done.output
    assert torch.get_num_threads() == 1  # the same numbers whatever the machine
    assert [line.split()[0] for line in done.stdout.splitlines()].count("history") == 2
    values = read_json(paths.QUESTIONS / "tables.json")
    assert values["next at all"]["history"]["value"]["mean"] > 90
    assert "bayes" not in values["next at all"]  # only the demo's grammar is known
    outlook = Outlook.load(encoder, paths.ENCODER, paths.QUESTIONS)
    assert outlook.answers(np.zeros((2, 16), np.float32), np.ones(2)).shape == (2, 3)


def test_the_filter_knows_what_follows_once_it_knows_where_it_is():
    chain = build_chain()
    told = bayes_next(chain, np.array([0, 1, 2, -1, 3, 4, 5]))  # the first procedure, a pause
    assert told[2] == told[3] == chain.label[3]
    assert told[-1] == chain.label[6]
