"""The real process, killed for real: the same command continues and ends in the same bytes."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

from pjepa.core.runs import token_offsets
from pjepa.core.tables import Classes
from pjepa.streams.stream import Take
from pjepa.tools.params import Params
from pjepa.tools.presets import params_text
from tests.pipeline.killed import ROOT, ended, run_killed, started
from tests.worlds.token_projects import write_project

PRESET = {
    "threads": 1,
    "pjepa": {
        "width": 64, "heads": 2, "predictor_heads": 2, "epochs": 30, "milestones": [25],
        "batch_tokens": 256, "snapshot_every": 10, "dropout": 0.1,
        "input_norm": "causal_center", "neighbours": [-2, -1, 1, 2], "exchange": 0.5,
        "accumulate": 2,
    }
}  # fmt: skip


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a small stream, its splits and params; a repository, as dvclive wants one."""
    monkeypatch.chdir(tmp_path)
    rng, takes = np.random.default_rng(0), {}
    for name in (f"t{number}" for number in range(12)):
        segment = np.repeat(np.arange(12), rng.integers(4, 12, 12)).astype(np.int32)
        features = rng.normal(size=(len(segment), 16)).astype(np.float32)
        times = np.arange(len(segment)) / 4
        takes[name] = Take(name, features, times, segment, token_offsets(segment)), segment
    classes, splits = Classes(tuple("abcdefghijkl"), 0), ["train"] * 10 + ["test"] * 2
    write_project(Path(), takes, classes, splits, ["t0"], fps=4.0)
    set_params()
    subprocess.run("git init -q && git add . && git -c user.name=x -c user.email=x@x "
                   "commit -qm x", shell=True, check=True)  # fmt: skip
    return tmp_path


def set_params(**changes):
    Path("params.yaml").write_text(
        params_text(Params.model_validate({**PRESET, "pjepa": {**PRESET["pjepa"], **changes}}))
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
    ended(started("pretrain"))
    expected = outputs()
    assert len(expected) > 8
    assert not list(Path(".dvc/tmp/pjepa/pretrain").glob("*/state.pt"))
    clear()
    run_killed("pretrain", (1, 15, 30), clear)
    assert outputs() == expected


def on_slurm():
    """Runs the script of docs/gpu.md with two nodes that are both this machine, a process on each.

    Returns the finished process and what DVC was asked for; neither Slurm nor DVC is there.
    """
    page = (ROOT / "docs" / "gpu.md").read_text()
    script = page[page.index("#!/bin/bash") :].partition("```")[0]
    port = str(20_000 + os.getpid() % 10_000)  # below those that systems give out
    for there, here in (("--nproc-per-node 4", "--nproc-per-node 1"), (":29500", f":{port}")):
        assert there in script
        script = script.replace(there, here)
    programs = {
        "scontrol": "echo localhost; echo other",
        "srun": '"$@" & first=$!; "$@" & second=$!; wait $first && wait $second',
        "dvc": 'echo "$@" >> asked',
        "torchrun": f'exec {sys.executable} -m torch.distributed.run "$@"',
    }
    folder = Path(".venv/bin")
    folder.mkdir(parents=True, exist_ok=True)
    for name, body in programs.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)
    path = f"{folder.resolve()}:{os.environ['PATH']}"  # Slurm's own programs
    slurm = {"SLURM_SUBMIT_DIR": ".", "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_JOB_ID": "7"}
    kept = {**os.environ, **slurm, "PATH": path, "PYTHONPATH": str(ROOT), "DVC_ROOT": "."}
    ran = subprocess.run(["bash", "-c", script], env=kept, check=False, stderr=subprocess.PIPE)
    asked = Path("asked")
    return ran, asked.read_text().splitlines() if asked.exists() else []


def trained(way):
    """Returns weights, losses and effective ranks of a training in one process or in two."""
    set_params(
        processes=1 if way == "alone" else 2, epochs=4, milestones=[3], snapshot_every=4,
        dropout=0.0, batch_tokens=200,
    )  # fmt: skip
    if way == "slurm":
        ran, asked = on_slurm()
        assert ran.returncode == 0, ran.stderr.decode()
        assert asked == ["commit --force pretrain", "repro"]
    else:
        ended(started("pretrain"))
    curves = Path("results/pretrain/plots/metrics")
    loss, rank = (
        pd.read_csv(curves / f"{name}.tsv", sep="\t")[name] for name in ("loss", "effective_rank")
    )
    weights = load_file("models/snapshots/00004/model.safetensors")
    assert not list(Path(".dvc/tmp/pjepa/pretrain").glob("*/"))
    clear()
    return weights, loss, rank


@pytest.mark.slow
def test_two_processes_train_what_one_does(project):
    """Up to the order of summation; the last step of an epoch may leave a process without takes."""
    one, curve, rank = trained("alone")
    for way in ("torchrun", "slurm"):
        two, other_curve, other_rank = trained(way)
        np.testing.assert_allclose(curve, other_curve, rtol=1e-5)
        np.testing.assert_allclose(rank, other_rank, rtol=1e-3)
        for name, weight in one.items():
            np.testing.assert_allclose(weight, two[name], atol=2e-5, err_msg=name)


@pytest.mark.slow
def test_a_failing_rank_is_one_line(project):
    set_params(processes=2, init_from="nowhere/at-all", epochs=0)
    process = started("pretrain")
    _, errors = process.communicate()
    assert process.returncode == 1
    assert b"nowhere/at-all: neither a folder" in errors
    assert errors.decode().strip().splitlines()[-1].startswith("error: a process of stages.pre")
    ran, asked = on_slurm()
    assert ran.returncode != 0
    assert asked == []  # nothing is recorded
