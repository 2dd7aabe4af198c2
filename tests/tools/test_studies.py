"""Budgets, shuffled segments and transfer: what the encoder saw, and who is scored."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from pjepa.core.tables import Classes
from pjepa.features.encoded import encoded
from pjepa.model.attention import Layout
from pjepa.probes.base.cell import CellInputs, run_cell
from pjepa.probes.base.config import ProbeCommonConfig
from pjepa.probes.linear.config import CONFIG
from pjepa.streams.provenance import PoolerInfo
from pjepa.streams.stream import StreamReader, StreamWriter, Take
from pjepa.tools import paths
from pjepa.tools.cli import app
from pjepa.tools.studies import budgeted, shuffled, shuffled_rows
from pjepa.ui.console import InputError
from tests.worlds.token_projects import make_take, small_encoder, write_project

MODES = [
    {"attention": "clip_causal"},
    {"attention": "clip_causal", "input_norm": "causal_center", "style_rank": 2},
    {"attention": "block_causal", "positions": "1d", "rope": "tiled"},
    {"attention": "token_causal"},
]


def take(lengths=(5, 9, 3, 8), name="t", seed=0):
    return make_take(lengths, name, seed)


@pytest.mark.parametrize("mode", MODES)
def test_a_budget_is_the_encoder_on_these_blocks_at_their_places(mode):
    model, one = small_encoder(**mode), take((5, 9, 3, 15))
    whole = encoded(model, one)
    np.testing.assert_allclose(budgeted(model, one, 99), whole, atol=2e-6)
    numbers = np.arange(32)
    block = {"clip_causal": one.segment, "block_causal": numbers // 8, "token_causal": numbers}
    block = block[mode["attention"]]
    for past in (0, 2):
        keep = np.flatnonzero((block >= 3 - past) & (block <= 3))
        own = block[keep] == 3
        places = [torch.from_numpy(part[keep]).long() for part in (one.segment, one.offset)]
        layout = Layout((len(keep),), *places, torch.from_numpy(keep))
        with torch.inference_mode():
            expected = model(torch.from_numpy(one.features[keep]), layout).numpy()[own]
        found = budgeted(model, one, past)[block == 3]
        np.testing.assert_allclose(found, expected, atol=2e-6)
        assert np.abs(found - whole[block == 3]).max() > 1e-3  # the rest was hidden
    with pytest.raises(InputError, match="bidirectional"):
        budgeted(small_encoder(attention="bidirectional"), one, 1)


def test_a_long_take_is_encoded_in_several_calls():
    model, one = small_encoder(), take((700, 900, 800, 900))
    np.testing.assert_allclose(budgeted(model, one, 9), encoded(model, one), atol=2e-6)


def test_shuffled_rows_are_whole_segments_in_another_order():
    one = take((5, 9, 3, 8, 6, 4))
    rows = shuffled_rows(one, 8, 0)
    assert sorted(rows) == list(range(35))
    assert list(rows) != list(range(35))
    jumps = np.flatnonzero(np.diff(rows) != 1) + 1
    assert set(rows[jumps]) <= {0, 5, 14, 17, 25, 31}  # only where a segment begins
    assert np.array_equal(rows, shuffled_rows(one, 8, 0))
    others = [shuffled_rows(one, 8, seed) for seed in (1, 2)]
    others.append(shuffled_rows(take((5, 9, 3, 8, 6, 4), "another"), 8, 0))
    assert all(not np.array_equal(rows, other) for other in others)
    bare = Take("t", one.features, one.times, np.full(35, -1, np.int32), one.offset)
    rows = shuffled_rows(bare, 8, 1)  # without annotation: blocks
    assert set(rows[np.flatnonzero(np.diff(rows) != 1) + 1]) <= {0, 8, 16, 24, 32}


def test_shuffled_features_come_back_in_the_order_of_the_take():
    model, one = small_encoder(attention="clip_causal"), take()
    rows = shuffled_rows(one, 8, 3)
    lengths = [int(part) for part in np.unique(one.segment[rows], return_counts=True)[1]]
    order = one.segment[rows][np.flatnonzero(np.diff(one.segment[rows], prepend=-1))]
    expected = model.encode(one.features[rows], [lengths[i] for i in order]).numpy()
    np.testing.assert_array_equal(shuffled(model, one, 3)[rows], expected)


def project(folder, names, pooler="p"):
    """Two train and two test takes; the class of a segment shows in its features."""
    means, known = np.random.default_rng(9).normal(size=(8, 6)), sorted(names)
    takes = {}  # the same class has the same features in every project
    for number in range(4):
        one = take((6, 7, 8, 6), f"t{number}", number)
        label = np.roll(np.arange(len(names)), number)[one.segment % len(names)]
        features = one.features + means[[known.index(names[i]) for i in label]]
        takes[one.take_id] = (one.with_features(features.astype(np.float32)), label)
    made_by = PoolerInfo(kind="k", sha256=pooler, supervised=False)
    splits = ["train", "train", "test", "test"]
    write_project(folder, takes, Classes(tuple(names), None), splits, pooler=made_by)


def fit_cell(folder, name, path):
    inputs = CellInputs(
        [path], folder / paths.LABELS, folder / paths.TAKES_TABLE, folder / paths.CLASSES
    )
    common = ProbeCommonConfig(bootstrap=10, streaming=())
    return run_cell(
        inputs, folder / paths.cell("linear", name), "linear", name, common, CONFIG(l2=(0.01,))
    )


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A project with an encoder and two fitted heads, and their metrics."""
    folder = tmp_path_factory.mktemp("project")
    project(folder, ["a", "b", "c"])
    model, stream = small_encoder(attention="clip_causal"), StreamReader(folder / paths.STREAM)
    model.save(folder / paths.ENCODER)
    path = folder / paths.representation("pjepa") / "stream.parquet"
    info = stream.info.model_copy(update={"width": 16})
    with StreamWriter(path, info, "float16") as writer:
        for one in stream.read_many():
            writer.write(one.with_features(encoded(model, one)))
    (folder / "params.yaml").write_text("threads: 1\nfeatures:\n  dtype: float16\n")
    metrics = {"raw": fit_cell(folder, "raw", folder / paths.STREAM)}
    metrics["pjepa"] = fit_cell(folder, "pjepa", path)
    return folder, metrics


def run_study(folder, monkeypatch, *options):
    monkeypatch.chdir(folder)
    torch.set_num_threads(2)
    done = CliRunner().invoke(app, ["study", "--json", "study.json", *options])
    assert done.exit_code == 0, done.output
    assert torch.get_num_threads() == 1  # as params.yaml says, whatever the machine
    return done.output, json.loads((folder / "study.json").read_text())


def test_with_the_whole_past_the_scores_are_those_of_the_cells(fitted, monkeypatch):
    folder, metrics = fitted
    text, found = run_study(folder, monkeypatch, "--past", "0", "--past", "9", "--shuffles", "2")
    rows = {(row["representation"], row["context"]): row for row in found["rows"]}
    for name, context in (("raw", "none"), ("pjepa", "whole past"), ("pjepa", "9 past blocks")):
        for metric in ("acc", "edit", "f1_50"):
            value = rows[name, context]["scores"][metric]["mean"]
            assert value == pytest.approx(metrics[name][metric])
    assert rows["pjepa", "9 past blocks"]["change"]["acc"]["mean"] == 0
    assert rows["pjepa", "0 past blocks"]["scores"]["acc"]["mean"] != metrics["pjepa"]["acc"]
    assert "segments shuffled" in text


def test_transfer_matches_classes_by_name_and_leaves_out_others(fitted, tmp_path, monkeypatch):
    folder, _ = fitted
    project(tmp_path, ["c", "b", "a"])  # the same classes, other numbers
    _, same = run_study(folder, monkeypatch, "--past", "0", "--shuffles", "0")
    _, renamed = run_study(
        folder, monkeypatch, "--past", "0", "--shuffles", "0", "--on", str(tmp_path)
    )
    raw = [found["rows"][0]["scores"]["acc"]["mean"] for found in (same, renamed)]
    assert raw[0] > 60 < raw[1]
    assert renamed["unknown"] == 0
    project(tmp_path, ["c", "b", "a", "trocar"])
    text, more = run_study(folder, monkeypatch, "--on", str(tmp_path))
    assert 0 < more["unknown"] < 0.5
    assert "of classes that the probe lacks" in text


def test_transfer_needs_tokens_of_one_pooler_and_a_shared_class(fitted, tmp_path, monkeypatch):
    folder, _ = fitted
    monkeypatch.chdir(folder)
    project(tmp_path, ["a", "b", "c"], pooler="another")
    project(tmp_path / "other", ["x", "y", "z"])
    for there, error in (
        (tmp_path, "pooler: p here, another there"),
        (tmp_path / "other", "no class of the reported takes"),
    ):
        done = CliRunner().invoke(app, ["study", "--on", str(there)])
        assert (done.exit_code, error in done.output) == (1, True)
