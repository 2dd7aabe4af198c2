"""docs/data.md and own-videos.md followed literally: folders, params, commands and rows."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from pjepa.takes.config import DataConfig
from pjepa.takes.sources.registry import open_source
from pjepa.tools.cli import app
from tests.pipeline.in_process import merged, project
from tests.worlds.assembly import SEQUENCES, VIEW, write_annotations, write_arrays, write_lmdb
from tests.worlds.bundles import write_bundle, write_egoprocel
from tests.worlds.egoexo4d import Download
from tests.worlds.own_videos import write_video

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "data.md").read_text()
SECTION = re.compile(r"^### [^\n]*\(`(\w+)`\)\n(.*?)(?=^##|\Z)", re.M | re.S)
BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.S)
SECTIONS = {found[1]: BLOCK.findall(found[2]) for found in SECTION.finditer(TEXT)}
OWN = (DOCS / "own-videos.md").read_text()
FEW_GROUPS = {"linear": {"l2": [0.01]}}  # these layouts have too few to choose among strengths


def lmdb(root: Path) -> None:
    write_annotations(root / "assembly101")
    write_lmdb(root / "assembly101/db_TSM_features" / VIEW)


def arrays(root: Path) -> None:
    write_annotations(root / "assembly101")
    write_arrays(root / "assembly101")


def recordings(root: Path, below: str) -> None:
    write_annotations(root / "assembly101")
    for name in SEQUENCES:
        write_video(root / f"assembly101/{below}{name}/{VIEW}.mp4", ("cut", "stir", "wait"), 5.0)


def salads(root: Path) -> None:
    write_bundle(root / "data/50salads", [f"rgb-{k:02d}-{n}" for k in range(1, 7) for n in (1, 2)])


@dataclass(frozen=True)
class Layout:
    """A folder as it is distributed, and parts of its names as the docs draw them.

    More of them are read in test_egoexo4d.py, test_assembly101.py and test_mstcn.py.
    """

    source: str
    write: Callable[[Path], object]
    drawn: str
    params: int = 0  # which of the section's params


LAYOUTS = {
    "egoexo4d": Layout(
        "egoexo4d",
        Download,
        "takes.json annotations/keystep_benchmark/ keystep_segment_train keystep_segment_val "
        "label_mapping.csv egoexo4d/takes/ /frame_aligned_videos/ _214-1.mp4",
    ),
    "assembly101": Layout(
        "assembly101",
        lmdb,
        "coarse-annotations/ actions.csv coarse_labels/ coarse_splits/ "
        "assembly101/db_TSM_features/C10119_rgb/data.mdb",
    ),
    "assembly101 arrays": Layout("assembly101", arrays, "TSM_features/ /C10119_rgb/features.npy"),
    **{
        f"assembly101 {below or 'own folder'}": Layout(
            "assembly101",
            partial(recordings, below=below),
            f"assembly101/ {below} /C10119_rgb.mp4",
            params=1,
        )
        for below in ("videos/", "recordings/", "")
    },
    "egoprocel": Layout(
        "egoprocel",
        lambda root: write_egoprocel(root / "egoprocel", annotations_fps=10.0),
        "egoprocel/features/ groundTruth/ mapping.txt split1. egoprocel/annotations/ .csv",
    ),
    "mstcn": Layout(
        "mstcn",
        salads,
        "data/50salads/ features/ groundTruth/ splits/ .bundle mapping.txt",
    ),
}


def ends_well(*command: str) -> str:
    done = CliRunner().invoke(app, list(command))
    assert done.exit_code == 0, f"{' '.join(command)}\n{done.output}"
    return done.output


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_docs_hold(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = LAYOUTS[name]
    layout.write(tmp_path)
    (_, drawn), *blocks = SECTIONS[layout.source]
    kind, params = blocks[layout.params]
    assert kind == "yaml"
    files = "\n".join(f"{file.relative_to(tmp_path)}" for file in tmp_path.rglob("*"))
    assert [part for part in layout.drawn.split() if part not in drawn or part not in files] == []
    values = merged(yaml.safe_load(params), {"probe": FEW_GROUPS})
    project(tmp_path / "project", monkeypatch, values, tmp_path)
    ends_well("data", "scan")
    ends_well("data", "check")


def test_every_source_is_followed() -> None:
    named = set(re.findall(r"^\| `(\w+)` \|", TEXT.partition("## Sources")[2], re.M))
    assert named == {"demo", "folder", "archive", *SECTIONS}
    assert {layout.source for layout in LAYOUTS.values()} == set(SECTIONS)
    for source, ((_, drawn), *_) in SECTIONS.items():
        parts = {
            p for made in LAYOUTS.values() if made.source == source for p in made.drawn.split()
        }
        assert [line for line in drawn.splitlines() if not any(p in line for p in parts)] == []


def test_the_rows_of_the_docs_are_read(tmp_path: Path) -> None:
    rows = re.search(r"```\n   (video,start,end,label.*?)\n   ```", OWN, re.S)
    assert rows
    lines = [line.strip() for line in rows[1].splitlines()]
    write_video(tmp_path / "videos" / lines[1].split(",")[0], ("cut",), 21.0)
    (tmp_path / "videos/labels.csv").write_text("\n".join(lines))
    found = open_source(DataConfig(source="folder"), tmp_path)
    assert [(s.start_s, s.end_s) for s in found.segments] == [(3.5, 12.0), (12.0, 20.25)]
    assert found.takes[0]["participant"] == "anna"


def test_every_label_file_of_the_docs_has_a_test() -> None:
    table = OWN.partition("| file | what is read |")[2].partition("\n\n")[0]
    assert [row.split(" | ")[0].strip("| ") for row in table.splitlines()[2:]] == [
        "`.csv`, `.tsv`, `.json`",  # test_labels.py
        "`groundTruth/<video>.txt`",  # test_folds.py
        "ELAN `.eaf`",  # test_elan.py, test_labels.py
        "WebVTT `.vtt`",  # test_labels.py
        "Label Studio `.json`",  # test_label_studio.py, test_labels.py
    ]
