"""Every preset on a miniature of its data: all stages in one process, sizes alone are changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from examples.ikea_asm import convert
from pjepa.core.section import read_params
from pjepa.storage.reading import read_json
from pjepa.streams import stream as store
from pjepa.streams.stream import StreamReader
from pjepa.tools import paths
from pjepa.tools.cli import app
from pjepa.tools.compare.paper import PAPER
from pjepa.tools.presets import preset_names
from tests.examples.ikea import write_checkout
from tests.pipeline.in_process import SMALL, merged, project, run_stages
from tests.worlds.archives import WIDTH, write_archive, write_release
from tests.worlds.bundles import write_bundle
from tests.worlds.egoexo4d import PLAN, Download, segment, take
from tests.worlds.own_videos import write_own_videos, write_video

pytestmark = pytest.mark.slow

PRESETS = Path(__file__).resolve().parents[2] / "presets"
NOT_DATA = {"demo", "fact-official", "ltcontext-official"}  # no data set of their own
NAMES = [name for name in preset_names(PRESETS) if name not in NOT_DATA]
ONCE = {"epochs": 1, "milestones": [1]}
TEMPORAL = {"stages": 2, "layers": 2, "width": 8, "window": 4, "stride": 4, **ONCE}
TINY: dict[str, Any] = {
    "pooler": {"depth": 2, "heads": 2, "epochs": 1},
    "pjepa": {"mlp_ratio": 2.0},
    "probe": {
        "common": {"streaming": ["segments"]},
        "foreground": ONCE,
        "attentive": {"window": 20, "chunk": 8, "width": 8, "heads": 2, **ONCE},
        "ltcontext": TEMPORAL,
        "ltcausal": TEMPORAL,
        "fact": {
            "blocks": "iU", "tokens": 8, "average_segments": 4.0, "hidden": 16, "frame_dim": 8,
            "frame_layers": 2, "update_frame_layers": 2, "action_dim": 8, "action_heads": 2,
            "action_ffn": 8, "action_layers": 1, **ONCE,
        },
    },
}  # fmt: skip


def write_data(values: dict[str, Any], root: Path) -> None:
    """The miniature of the preset's data set."""
    data = values["data"]
    if data["source"] == "archive":
        write_archive(root, data.get("archive", {}).get("set", "assembly101"))
    elif data["source"] == "egoprocel":
        names = [f"S{n:02d}_Brownie_7150991-{n}" for n in range(8)]
        write_bundle(root / "egoprocel", names, ("background", "open box", "stir"), True)
        for split in ("train", "test"):
            text = (root / f"egoprocel/splits/{split}.split1.bundle").read_text()
            (root / f"egoprocel/split1.{split}").write_text(text.replace(".txt", ""))
    elif data["source"] == "assembly101":
        write_recordings(root / "assembly101")
    elif data["source"] == "egoexo4d":
        write_keysteps(root)
    elif data["source"] == "mstcn":
        write_checkout(root / "checkout")
        convert(root / "checkout", root / data["mstcn"]["dataset"])
    elif data["source"] == "folder":
        write_own_videos(root / "videos")
    else:
        raise AssertionError(f"no miniature of {data['source']}")


def write_recordings(folder: Path) -> None:
    """Videos and coarse annotations of Assembly101: 30 fps frame numbers, two takes a recording."""
    coarse = folder / "coarse-annotations"
    for part in ("coarse_labels", "coarse_splits"):
        (coarse / part).mkdir(parents=True)
    steps = ("cut", "stir", "wait")
    actions = [f"{n},{n},0,{step},{step},thing" for n, step in enumerate(steps)]
    header = "action_id,verb_id,noun_id,action_cls,verb_cls,noun_cls"
    (coarse / "actions.csv").write_text("\n".join([header, *actions]))
    listed: dict[tuple[str, str], list[str]] = {}
    for number in range(5):
        name, split = f"rec{number}", "train" if number < 3 else "val"
        order = tuple(np.roll(steps, number))
        write_video(folder / "recordings" / name / "C10119_rgb.mp4", order * 2, part_s=1.0)
        for kind, start in (("assembly", 1), ("disassembly", 91)):
            file = f"{kind}_{name}.txt"
            lines = [f"{start + 30 * k}\t{start + 30 * k + 30}\t{s}\t" for k, s in enumerate(order)]
            (coarse / "coarse_labels" / file).write_text("\n".join(lines))
            listed.setdefault((split, kind), []).append(f"{file}\t0\tt{number}\ttoy {number}")
    for (split, kind), lines in listed.items():
        (coarse / "coarse_splits" / f"{split}_coarse_{kind}.txt").write_text("\n".join(lines))


def write_keysteps(root: Path) -> None:
    """Ego-Exo4D: seven takes of three keysteps."""
    world = Download(root)
    world.takes, world.segments = [], {"train": [], "val": []}
    for number in range(7):
        name, order = f"uni_cooking_{number:02d}_1", np.roll(range(3), number).tolist()
        world.takes.append(take(name) | {"participant_uid": number})
        write_video(world.videos(name) / "aria01_214-1.mp4", tuple(PLAN[step] for step in order))
        world.segments["train" if number < 5 else "val"] += [
            segment(name, 2.0 * k, 2.0 * k + 2, step) for k, step in enumerate(order)
        ]
    world.write()


def miniature(name: str, root: Path) -> dict[str, Any]:
    """The preset's values at small sizes, its data and encoder written below `root`."""
    values = read_params(PRESETS / f"{name}.yaml")
    write_data(values, root)
    small = merged(values, SMALL, TINY)
    small["cells"] = merged(values.get("cells", {}), SMALL["cells"])
    if start := values["pjepa"].get("init_from"):
        file = root / "tiny.pt"
        write_release(file, start.removeprefix("release:"))
        small["pjepa"] |= {"init_from": f"release:{file}", "epochs": 0, "mlp_ratio": 4.0}
    return small


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_runs_to_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    small = miniature(name, tmp_path / "root")
    params = project(tmp_path / "project", monkeypatch, small, tmp_path / "root")
    said = run_stages()
    metrics = json.loads(paths.METRICS.read_text())
    for probe in params.cells.probes:
        assert set(metrics[probe]) == {"raw", "segment_mean", "pjepa"}
        assert all(0 <= row["acc"] <= 100 for row in metrics[probe].values())
    stream = StreamReader(paths.STREAM)
    assert (stream.info.fps, stream.dtype) == (params.tokens.fps, params.tokens.dtype)
    chosen = read_json(paths.ENCODER / "selection.json")
    if params.pjepa.init_from:
        assert stream.info.width == WIDTH
        assert chosen["epoch"] == 0
        assert chosen["selection_labels"] != "none"  # the release chose with labels
    else:
        assert chosen["by"] == params.select.by
    if params.data.ships_features:
        assert "patches: the takes ship features" in said
    if name in PAPER:
        check_table(name)


def check_table(name: str) -> None:
    """`pjepa table` finds the preset by its data and says that this run is no repetition."""
    shutil.copytree(PRESETS, "presets")
    shown = CliRunner().invoke(app, ["table", "--preset", name])
    assert shown.exit_code == 0, shown.output
    assert "ours - paper" in shown.output
    assert "params.yaml is not the preset: " in shown.output
    guessed = CliRunner().invoke(app, ["table", "--latex"])
    assert guessed.exit_code == 0, guessed.output
    assert "\\toprule" in guessed.output


def test_streams_in_parts_give_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream over 2 GB is a folder of parts, for every stage."""
    values = miniature("release-assembly101-clip", tmp_path / "root")
    found = []
    for name, limit in (("whole", store.PART_BYTES), ("parts", 4000)):
        monkeypatch.setattr(store, "PART_BYTES", limit)
        project(tmp_path / name, monkeypatch, values, tmp_path / "root")
        run_stages()
        found.append(read_json(paths.METRICS))
    assert len(list(paths.STREAM.iterdir())) > 1
    assert found[0] == found[1]
