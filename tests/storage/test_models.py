"""Encoders with their cards, in folders and on a hub."""

import json
import shutil
from unittest.mock import create_autospec

import numpy as np
import pytest
import torch
from huggingface_hub import HfApi, ModelCard, RepoUrl, snapshot_download
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
from pjepa.ui.console import InputError

CONFIG = EncoderConfig(d_in=5, width=16, depth=1, heads=2, attention="clip_causal")


def encoder(**changes):
    torch.manual_seed(0)
    return ProcedureEncoder(CONFIG.model_copy(update=changes)).eval()


@pytest.fixture
def api(tmp_path, monkeypatch):
    """A hub that is a folder, behind those methods of its client that are called."""
    client, hub = create_autospec(HfApi, instance=True, endpoint="https://hub"), tmp_path / "hub"
    client.create_repo.side_effect = lambda repo, **_: RepoUrl(
        f"https://hub/{repo}", endpoint="https://hub"
    )

    def upload(*, folder_path, repo_id, allow_patterns, **_):
        (hub / repo_id).mkdir(parents=True)
        for name in allow_patterns:
            shutil.copy(folder_path / name, hub / repo_id)

    client.upload_folder.side_effect = upload
    client.download = create_autospec(snapshot_download, side_effect=lambda repo, **_: hub / repo)
    monkeypatch.setattr("huggingface_hub.HfApi", lambda token: client)
    monkeypatch.setattr("huggingface_hub.snapshot_download", client.download)
    return client


def test_an_encoder_goes_to_the_hub_and_comes_back(tmp_path, api):
    assert encoder().push_to_hub("me/kitchen") == "https://hub/me/kitchen"
    api.create_repo.assert_called_once_with("me/kitchen", private=True, exist_ok=True)
    encoder().save_pretrained(tmp_path / "encoder")
    for name in ("README.md", "config.json", "model.safetensors"):
        file = tmp_path / "hub/me/kitchen" / name
        assert file.read_bytes() == (tmp_path / "encoder" / name).read_bytes()
    options = {"revision": "main", "cache_dir": tmp_path, "token": "hf_test"}
    again = ProcedureEncoder.from_pretrained("me/kitchen", **options)
    assert again.config == encoder().config
    torch.testing.assert_close(again.state_dict(), encoder().state_dict(), rtol=0, atol=0)
    assert options.items() <= api.download.call_args.kwargs.items()


def test_what_the_hub_refuses_is_one_line(api, monkeypatch):
    api.create_repo.side_effect = OSError("401 Client Error\nInvalid user token")
    with pytest.raises(InputError, match=r"^me/kitchen: .*401 Client Error\); .*hf auth login"):
        encoder().push_to_hub("me/kitchen")
    monkeypatch.setattr("huggingface_hub.HfApi", HfApi)  # which checks names on its own
    with pytest.raises(InputError, match=r"^me/not a name: .*"):
        encoder().push_to_hub("me/not a name", token="hf_test")


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
    source = "<script>alert(1)</script> | [x](http://evil)\n# Title"
    hostile = model_card(CONFIG, CardFacts(tokens=StreamInfo(source=source, fps=4, width=5)))
    assert not [text for text in ("<script>", "\n# Title", "[x](http") if text in hostile]
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
    splits = {"a": "train", "b": "train", "c": "pretrain", "d": "test"}
    rows = [take_row(name, "kitchen", split) for name, split in splits.items()]
    held = [{**row, "holdout": row["take_id"] == "b"} for row in rows]
    paths.TAKES_TABLE.parent.mkdir(parents=True)
    write_table(paths.TAKES_TABLE, held, TAKES)
    paths.STREAM.parent.mkdir(parents=True)
    zeros = np.zeros(2, np.int32)
    with StreamWriter(paths.STREAM, StreamInfo(source="kitchen", fps=4.0, width=5)) as writer:
        writer.write(Take("a", np.zeros((2, 5), np.float32), np.arange(2.0), zeros, zeros))
    done = runner.invoke(app, ["publish", "--folder", "out"])
    assert done.exit_code == 0, done.output
    card = (tmp_path / "out/README.md").read_text()
    assert "Epoch 7" in card
    assert "| pjepa | 50.0 |" in card
    assert "demo" not in card
    assert "1 kitchen pretrain, 1 kitchen train" in card
    again = ProcedureEncoder.from_pretrained(tmp_path / "out")
    tokens = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)
    torch.testing.assert_close(again.encode(tokens, [2, 4]), encoder().encode(tokens, [2, 4]))
