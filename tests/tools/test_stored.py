"""`pjepa doctor --verify` names every stored file that is not what was written, and no other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from dvc.repo import Repo
from typer.testing import CliRunner

from pjepa.patches.store import patch_writer
from pjepa.pretrain.data import copy_features
from pjepa.storage.saver import Saver, save_state
from pjepa.streams.provenance import StreamInfo
from pjepa.streams.stream import StreamReader, StreamWriter, Take
from pjepa.tools.cli import app
from tests.patches.patch_infos import patch_info
from tests.storage.flip import flip

WORK = Path(".dvc/tmp/pjepa")
STREAM = Path("data/tokens/stream.parquet")
METRICS = Path("results/metrics.json")
PIPELINE = f"""stages:
  tokens:
    cmd: "true"
    outs: [{STREAM}]
    metrics: [{METRICS}: {{cache: false}}]
"""
DAMAGED = [
    WORK / "store/patches/key.safetensors",
    WORK / "pretrain/key-code/state.pt",
    WORK / "pretrain/key-code/state.pt.before",
    WORK / "pretrain/key-code/features.raw",
    Path("live/state.safetensors"),
    Path("live/state.safetensors.before"),
    STREAM / "part-00001.parquet",
    METRICS,
]


def make_tree() -> None:
    """One of each kind of stored file, made by what makes it in earnest."""
    repo = Repo.init(".", no_scm=True)
    info = patch_info()
    with patch_writer(DAMAGED[0], info, 3) as patches:
        patches.append(np.ones((3, info.cells, info.width), np.float16))
    saver = Saver(DAMAGED[1], lambda: {"weight": torch.ones(3)})
    for _ in range(2):
        saver.save_when_due(now=True)
        save_state(Path("live"), {"counts": torch.ones(2)}, {"source": "-"})
    STREAM.parent.mkdir(parents=True)
    with StreamWriter(STREAM, StreamInfo(source="x", fps=4, width=2), part_bytes=20) as writer:
        for number in range(3):
            place = np.zeros(4, np.int32)
            writer.write(Take(f"t{number}", np.ones((4, 2)), np.arange(4) / 4, place, place))
    copy_features(StreamReader(STREAM), ["t0", "t1"], DAMAGED[3])
    METRICS.parent.mkdir()
    METRICS.write_text("{}\n")
    Path("dvc.yaml").write_text(PIPELINE)
    with repo:
        repo.commit("tokens", force=True)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DVC_ROOT", raising=False)
    make_tree()


def verified() -> tuple[set[str], int]:
    """What the command names, and its exit code."""
    done = CliRunner().invoke(app, ["doctor", "--verify"])
    lines = done.stdout.splitlines() + done.stderr.splitlines()
    names = [line.split(":")[0].removeprefix("damaged ") for line in lines if ": is not" in line]
    assert len(names) == len(set(names))
    return set(names), done.exit_code


@pytest.mark.usefixtures("tree")
def test_each_damaged_file_is_named_and_no_other() -> None:
    assert verified() == (set(), 0)
    named = set()
    for file in DAMAGED:  # one after the other
        flip(file, 1)
        named.add(str(file))
        assert verified() == (named, 1)
    (cached,) = Path(".dvc/cache").rglob("*.dir")
    flip(cached)  # DVC no longer knows what the parts of the stream were
    parts = {str(file) for file in DAMAGED if STREAM in file.parents}
    assert verified()[0] == (named - parts) | {str(STREAM), str(cached.absolute())}


@pytest.mark.usefixtures("tree")
def test_a_lock_that_is_none_is_one_line() -> None:
    for content in ("", "[1, 2]"):
        Path("dvc.lock").write_text(content)
        done = CliRunner().invoke(app, ["doctor", "--verify"])
        assert done.exit_code == 1
        assert "error: dvc.lock: no lock file of DVC; take it from Git" in done.stderr
