"""The real process, killed for real: the same command continues and ends in the same bytes."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from pjepa.config.params import Params
from pjepa.config.presets import params_text
from pjepa.paths import STREAM, TAKES_TABLE
from pjepa.streams.schema import StreamInfo
from pjepa.streams.segments import token_offsets
from pjepa.streams.store import StreamWriter, Take
from pjepa.takes.manifest import TAKES, write_table
from tests.stages.killed import run_killed, run_through, started

PRESET = {
    "pjepa": {
        "width": 64, "heads": 2, "predictor_heads": 2, "epochs": 60, "milestones": [50],
        "batch_tokens": 256, "snapshot_every": 20, "threads": 1, "dropout": 0.1,
        "input_norm": "causal_center",
    }
}  # fmt: skip


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a small stream, its splits and params; a repository, as dvclive wants one."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = []
    with StreamWriter(STREAM, StreamInfo(source="test", fps=4.0, width=16)) as writer:
        for number in range(12):
            segment = np.repeat(np.arange(12), rng.integers(4, 12, 12)).astype(np.int32)
            count = len(segment)
            features = rng.normal(size=(count, 16)).astype(np.float32)
            times = np.arange(count) / 4
            writer.write(Take(f"t{number}", features, times, segment, token_offsets(segment)))
            split = "train" if number < 10 else "test"
            row = dict.fromkeys(TAKES.names, "x") | {"take_id": f"t{number}", "split": split}
            rows.append(row | {"holdout": number == 0, "group": f"g{number}"})
    write_table(TAKES_TABLE, rows, TAKES)
    Path("params.yaml").write_text(params_text(Params.model_validate(PRESET)))
    subprocess.run("git init -q && git add . && git -c user.name=x -c user.email=x@x "
                   "commit -qm x", shell=True, check=True)  # fmt: skip
    return tmp_path


def set_params(**changes):
    Path("params.yaml").write_text(
        params_text(Params.model_validate({"pjepa": {**PRESET["pjepa"], **changes}}))
    )


def outputs():
    files = [p for d in ("models/snapshots", "results/pretrain") for p in Path(d).rglob("*")]
    return {p: hashlib.sha256(p.read_bytes()).hexdigest() for p in files if p.is_file()}


def clear():
    for folder in ("models", "results"):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="kills a process by signal")
def test_killed_and_repeated_it_ends_in_the_same_bytes(project):
    run_through("pretrain")
    expected = outputs()
    assert len(expected) > 8
    assert not list(Path(".dvc/tmp/pjepa/pretrain").glob("*/state.pt"))
    clear()
    assert run_killed("pretrain", "state.pt", clear) >= 1
    assert outputs() == expected


@pytest.mark.slow
def test_two_processes_train_what_one_does(project):
    """Up to the order of summation; the last step of an epoch may leave a process without takes."""
    found = []
    for processes in (1, 2):
        set_params(
            processes=processes, epochs=4, milestones=[3], snapshot_every=4, accumulate=2,
            dropout=0.0, batch_tokens=200,
        )  # fmt: skip
        process = started("pretrain")
        _, errors = process.communicate()
        assert process.returncode == 0, errors.decode()
        curve = pd.read_csv("results/pretrain/plots/metrics/loss.tsv", sep="\t")["loss"]
        rank = pd.read_csv("results/pretrain/plots/metrics/effective_rank.tsv", sep="\t")
        found.append((load_file("models/snapshots/00004/model.safetensors"), curve, rank))
        clear()
    (one, curve, rank), (two, other_curve, other_rank) = found
    np.testing.assert_allclose(curve, other_curve, rtol=1e-5)
    np.testing.assert_allclose(rank["effective_rank"], other_rank["effective_rank"], rtol=1e-3)
    for name, weight in one.items():
        np.testing.assert_allclose(weight, two[name], atol=2e-5, err_msg=name)
    assert not list(Path(".dvc/tmp/pjepa/pretrain").glob("*/"))


@pytest.mark.slow
def test_a_failing_rank_is_one_line(project):
    set_params(processes=2, init_from="nowhere/at-all", epochs=0)
    process = started("pretrain")
    _, errors = process.communicate()
    assert process.returncode == 1
    assert b"nowhere/at-all: neither a folder" in errors
    assert errors.decode().strip().splitlines()[-1].startswith("error: a process of stages.pre")
