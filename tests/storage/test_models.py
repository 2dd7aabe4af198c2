"""Encoders with their cards, in folders and on a hub (a local server that speaks its protocol)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from typer.testing import CliRunner

from pjepa.core.tables import TAKES, write_table
from pjepa.model.card import CardFacts, model_card
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder
from pjepa.streams.provenance import Provenance, StreamInfo
from pjepa.streams.stream import StreamWriter, Take
from pjepa.takes.source import take_row
from pjepa.tools import paths
from pjepa.tools.cli import app
from pjepa.tools.cli.export import project_card
from tests.storage.fake_hub import FakeHub

CONFIG = EncoderConfig(d_in=5, width=16, depth=1, heads=2, attention="clip_causal")
SCRIPT = """
import sys, torch
from pjepa import ProcedureEncoder
from pjepa.ui.console import InputError
encoder = ProcedureEncoder.from_pretrained(sys.argv[1])
try:
    print(encoder.push_to_hub(sys.argv[2], token=sys.argv[3]))
    cache = sys.argv[1] + "-cache"
    options = dict(revision="main", cache_dir=cache, token=sys.argv[3])
    again = ProcedureEncoder.from_pretrained(sys.argv[2], **options)
    both = zip(encoder.state_dict().values(), again.state_dict().values(), strict=True)
    same = all(torch.equal(one, other) for one, other in both)
    print("same" if same and again.config == encoder.config else "different")
except InputError as error:
    print("error:", error)
"""


def encoder(**changes):
    torch.manual_seed(0)
    return ProcedureEncoder(CONFIG.model_copy(update=changes)).eval()


def at_hub(hub, tmp_path, *arguments):
    """In a process of its own: huggingface_hub reads its settings when it is imported."""
    environment = dict(os.environ, HF_ENDPOINT=hub.address, HF_HOME=str(tmp_path / "home"),
                       HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_TELEMETRY="1",
                       HF_HUB_ETAG_TIMEOUT="600", HF_HUB_DOWNLOAD_TIMEOUT="600")  # fmt: skip
    command = [sys.executable, "-c", SCRIPT, *map(str, arguments)]
    root = Path(__file__).resolve().parents[2]
    return subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True)


@pytest.mark.slow
def test_an_encoder_goes_to_the_hub_and_comes_back(tmp_path):
    hub = FakeHub()
    encoder().save_pretrained(tmp_path / "encoder")
    done = at_hub(hub, tmp_path, tmp_path / "encoder", "me/kitchen", "hf_test")
    assert done.stdout.splitlines() == [f"{hub.address}/me/kitchen", "same"], done.stderr
    assert sorted(hub.files["me/kitchen"]) == ["README.md", "config.json", "model.safetensors"]
    assert hub.private["me/kitchen"] is True
    assert list((tmp_path / "encoder-cache").glob("models--me--kitchen"))  # cache_dir is used
    for name, content in hub.files["me/kitchen"].items():
        assert content == (tmp_path / "encoder" / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("repo", "token", "message"),
    [("me/kitchen", "hf_wrong", "hf auth login"), ("me/not a name", "hf_test", "not a name")],
)
def test_what_the_hub_refuses_is_one_line(tmp_path, repo, token, message):
    encoder().save_pretrained(tmp_path / "encoder")
    done = at_hub(FakeHub(), tmp_path, tmp_path / "encoder", repo, token)
    assert done.stdout.startswith(f"error: {repo}: "), done.stderr
    assert message in done.stdout
    assert len(done.stdout.splitlines()) == 1


def test_the_card_says_what_is_known_and_what_is_not():
    bare = model_card(CONFIG)
    assert bare.count("Not recorded here") == 2
    assert "None recorded here" in bare
    assert "segment_lengths" in bare
    assert "without true boundaries" in bare
    block = CONFIG.model_copy(update={"attention": "block_causal", "positions": "1d"})
    assert "segment_lengths" not in model_card(block)
    facts = CardFacts(
        tokens=StreamInfo(
            source="TSM", fps=3.75, width=5, provenance=Provenance(train_labels=True)
        ),
        features=StreamInfo(source="x", fps=4, width=16, provenance=Provenance(lookahead_s=7.25)),
        takes={"assembly101 train": 393},
        selection={"by": "val", "epoch": 940, "selection_labels": "val"},
        metrics={"linear": {"raw": {"acc": 23.5}, "pjepa": {"acc": 40.1, "edit": 15.0}}},
    )
    card = model_card(CONFIG, facts)
    for text in ("TSM, 5 channels at 3.75", "393 assembly101 train", "trained with labels",
                 "Epoch 940", "optimistic", "| pjepa | 40.1 | 15.0 |", "7.25 s"):  # fmt: skip
        assert text in card


def test_the_snippet_of_the_card_runs(tmp_path):
    for changes in ({}, {"attention": "block_causal", "positions": "1d", "block": 7}):
        encoder(**changes).save_pretrained(tmp_path)
        card = (tmp_path / "README.md").read_text()
        snippet = card.split("```python\n")[1].split("```")[0]
        names = {}
        exec(snippet.replace("FOLDER_OR_HUB_ID", str(tmp_path)), names)
        assert names["features"].shape == (49, 16)


def test_the_hub_reads_the_front_matter(tmp_path):
    facts = CardFacts(
        metrics={"linear": {"raw": {"acc": 30.0}, "pjepa": {"acc": 50.126}}},
        datasets=["kitchen"], backbone="timm:vit_base", licence="mit",
    )  # fmt: skip
    data = ModelCard(model_card(CONFIG, facts)).data
    assert (data.license, data.base_model, data.datasets) == ("mit", "timm/vit_base", ["kitchen"])
    assert data.pipeline_tag == "feature-extraction"
    (result,) = data.eval_results
    assert (result.metric_type, result.metric_value) == ("acc", 50.13)
    assert ModelCard(model_card(CONFIG)).data.eval_results is None


def test_names_from_data_stay_text_in_the_card():
    source = "<script>alert(1)</script> | [x](http://evil)\n# Title"
    card = model_card(CONFIG, CardFacts(tokens=StreamInfo(source=source, fps=4, width=5)))
    assert "<script>" not in card
    assert "\n# Title" not in card
    assert "[x](http" not in card


def test_publish_writes_the_project_card(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()
    for arguments, message in (([], "--folder"), (["me/x"], "dvc repro select")):
        done = runner.invoke(app, ["publish", *arguments])
        assert done.exit_code == 1
        assert message in done.output
    encoder().save_pretrained(paths.ENCODER)
    (paths.ENCODER / "selection.json").write_text(
        json.dumps({"by": "last", "epoch": 7, "selection_labels": "none"})
    )
    paths.METRICS.parent.mkdir()
    metrics = {"demo": {"history": 95.0}, "linear": {"pjepa": {"acc": 50.0}}}
    paths.METRICS.write_text(json.dumps(metrics))
    done = runner.invoke(app, ["publish", "--folder", "out"])
    assert done.exit_code == 0, done.output
    card = (tmp_path / "out/README.md").read_text()
    assert "Epoch 7" in card
    assert "| pjepa | 50.0 |" in card
    assert "demo" not in card
    again = ProcedureEncoder.from_pretrained(tmp_path / "out")
    tokens = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    torch.testing.assert_close(again.encode(tokens, [2, 4]), encoder().encode(tokens, [2, 4]))


def test_the_card_counts_the_takes_that_the_encoder_saw(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths.STREAM.parent.mkdir(parents=True)
    takes = [("a", "train", False), ("b", "train", True), ("c", "pretrain", False)]
    rows = [take_row(name, "kitchen", split) for name, split, _ in [*takes, ("d", "test", False)]]
    held = {name: holdout for name, _, holdout in takes}
    paths.TAKES_TABLE.parent.mkdir(parents=True)
    rows = [{**row, "holdout": held.get(row["take_id"], False)} for row in rows]
    write_table(paths.TAKES_TABLE, rows, TAKES)
    with StreamWriter(paths.STREAM, StreamInfo(source="kitchen", fps=4.0, width=5)) as writer:
        zeros = np.zeros(2, np.int32)
        writer.write(Take("a", np.zeros((2, 5), np.float32), np.arange(2.0), zeros, zeros))
    assert "1 kitchen pretrain, 1 kitchen train" in project_card(encoder())
