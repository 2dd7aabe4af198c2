"""Pretraining on the pretend device: whole runs, and how often the host waits."""

from typing import Any

import numpy as np
import pytest
import torch

from pjepa.model.encoder import ProcedureEncoder
from pjepa.pretrain import feed
from pjepa.pretrain.config import PjepaConfig
from pjepa.pretrain.loop import pretrain
from pjepa.storage import saver
from pjepa.ui import console as progress
from pjepa.ui.console import InputError
from tests.pretend.device import NAME, counted
from tests.pretrain.conftest import some_takes

NORM = "causal_center"
EPOCH_END = 6  # readings at the end of an epoch


def small(**changes):
    settings: dict[str, Any] = {
        "width": 16, "heads": 2, "predictor_heads": 2, "depth": 1, "predictor_depth": 1,
        "epochs": 2, "lr": 1e-3, "batch_tokens": 60, "accumulate": 2, "snapshot_every": 1,
        "block": 8, "device": NAME,
    }  # fmt: skip
    return PjepaConfig(**settings | changes)


def trained(config, folder):
    log = []
    pretrain(some_takes(), config, folder / "work", folder / "out", log.append)
    return log


CASES = [
    {"input_norm": "none", "attention": "bidirectional", "stream": "device", "exchange": 0.5},
    {"input_norm": "standardize", "attention": "block_causal", "segments": "fixed"},
    {"input_norm": "take_center", "attention": "token_causal", "checkpoint_activations": True},
    {"input_norm": "causal_center", "neighbours": (-1, 1), "stream": "file", "max_run": 3},
    {"input_norm": "causal_center", "exchange": 0.5, "stream": "device", "crop_tokens": 15},
    {"input_norm": "causal_center", "segments": "found", "found_tokens": 4, "found_max": 9},
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case.values())))
def test_a_run_gives_what_the_cpu_gives(case, tmp_path):
    there = trained(small(**case), tmp_path / NAME)
    here = trained(small(**case, device="cpu"), tmp_path / "cpu")
    for entry, expected in zip(there, here, strict=True):
        assert entry == pytest.approx(expected, rel=1e-3)
    ProcedureEncoder.from_pretrained(tmp_path / NAME / "out" / "00002", NAME)


@pytest.mark.parametrize(("stream", "takes"), [("device", 16), ("file", 6)])
def test_a_step_waits_for_nothing(stream, takes, monkeypatch, tmp_path):
    """Whatever the number of takes and passes; an epoch's end and a saved state are waited for."""
    monkeypatch.setattr(saver.Saver, "is_due", lambda own: False)
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 1e9)
    made = some_takes(takes)

    def waits(epochs):
        config = small(
            epochs=epochs, neighbours=(-1, 1), accumulate=3, snapshot_every=99, input_norm=NORM,
            stream=stream,
        )  # fmt: skip
        with counted() as found:
            folder = tmp_path / str(epochs)
            pretrain(made, config, folder / "work", folder / "out", [].append)
        return found

    short, long = waits(1), waits(2)
    added = long.found - short.found
    assert sum(n for (kind, _), n in added.items() if kind == "upload") == 0, long.table()
    syncs = {line: n for (kind, line), n in added.items() if kind == "sync"}
    assert sum(syncs.values()) <= EPOCH_END, syncs


@pytest.mark.parametrize(("free", "kind"), [(4.0, feed.DeviceTokens), (3.9, feed.FileTokens)])
def test_auto_takes_a_quarter_of_free_memory(free, kind, monkeypatch):
    takes = some_takes()
    size = sum(take.features.nbytes for take in takes)
    monkeypatch.setattr(feed, "free_bytes", lambda _: free * size)
    assert type(feed.choose_placement(torch.device(NAME), takes, "auto")) is kind
    assert type(feed.choose_placement(torch.device("cpu"), takes, "device")) is feed.FileTokens


def test_a_bad_step_is_noticed_before_anything_is_kept(tmp_path):
    takes = some_takes()
    takes[3].features[2] = np.inf
    with pytest.raises(InputError, match="the last good state is kept"):
        pretrain(takes, small(input_norm="none"), tmp_path / "work", tmp_path / "out", [].append)
    assert not list(tmp_path.rglob("*.pt"))
    assert not (tmp_path / "out").exists()
