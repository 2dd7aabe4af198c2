"""docs/data.md and own-videos.md followed literally: folders, params, commands and rows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from pjepa.takes.config import DataConfig
from pjepa.takes.sources.registry import open_source
from pjepa.tools.cli import app
from pjepa.tools.params import check_params
from tests.pipeline.in_process import merged, project
from tests.worlds.assembly import SEQUENCES, VIEW, write_annotations, write_arrays, write_lmdb
from tests.worlds.bundles import GTEA, write_bundle, write_egoprocel
from tests.worlds.egoexo4d import Download
from tests.worlds.own_videos import write_own_videos, write_video

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "data.md").read_text()
SECTION = re.compile(r"^### [^\n]*\(`(\w+)`\)\n(.*?)(?=^##|\Z)", re.M | re.S)
BLOCK = re.compile(r"```(\w*)\n(.*?)```", re.S)
SECTIONS = {found[1]: BLOCK.findall(found[2]) for found in SECTION.finditer(TEXT)}
OWN = (DOCS / "own-videos.md").read_text()
FEW_GROUPS = {"linear": {"l2": [0.01]}}  # these layouts have too few to choose among strengths
ELSE = (" or ", "optional", "with input", "[downscaled")  # what may be there instead, or beside


def downscaled(root: Path) -> None:
    for file in sorted(Download(root).folder.glob("takes/*/frame_aligned_videos/*.mp4")):
        (file.parent / "downscaled/448").mkdir(parents=True)
        file.rename(file.parent / "downscaled/448" / file.name)


def lmdb(root: Path, below: str = "db_TSM_features/") -> None:
    write_annotations(root / "assembly101")
    write_lmdb(root / "assembly101" / f"{below}{VIEW}")


def arrays(root: Path) -> None:
    write_annotations(root / "assembly101")
    write_arrays(root / "assembly101")


def recordings(root: Path, below: str) -> None:
    write_annotations(root / "assembly101")
    for name in SEQUENCES:
        write_video(root / f"assembly101/{below}{name}/{VIEW}.mp4", ("cut", "stir", "wait"), 5.0)


def salads(root: Path) -> None:
    write_bundle(root / "50salads", [f"rgb-{k:02d}-{n}" for k in range(1, 7) for n in (1, 2)])


@dataclass(frozen=True)
class Layout:
    """A folder as it is distributed; `line` is the one of the docs that it follows, if not all."""

    source: str
    write: Callable[[Path], object]
    line: str = ""
    change: dict[str, Any] = field(default_factory=dict)
    params: int = 0  # which of the section's params


LAYOUTS = {
    "egoexo4d": Layout("egoexo4d", Download),
    "egoexo4d downscaled": Layout("egoexo4d", downscaled, "egoexo4d/takes/<"),
    "assembly101": Layout("assembly101", lmdb),
    "assembly101 unpacked": Layout("assembly101", lambda root: lmdb(root, ""), "assembly101/db"),
    "assembly101 arrays": Layout("assembly101", arrays, "assembly101/TSM"),
    **{
        f"assembly101 {below or 'own folder'}": Layout(
            "assembly101", lambda root, below=below: recordings(root, below),  # type: ignore[misc]
            "assembly101/[videos", params=1,
        )
        for below in ("videos/", "recordings/", "")
    },
    "egoprocel": Layout("egoprocel", lambda root: write_egoprocel(root / "egoprocel")),
    "egoprocel annotations": Layout(
        "egoprocel", lambda root: write_egoprocel(root / "egoprocel", annotations_fps=10.0),
        "egoprocel/annotations",
    ),
    "mstcn": Layout("mstcn", lambda root: salads(root / "data")),
    "mstcn without data/": Layout("mstcn", salads, "data/"),
    "mstcn gtea": Layout(
        "mstcn", lambda root: write_bundle(root / "data/gtea", GTEA), "data/",
        {"data": {"mstcn": {"dataset": "gtea"}}},
    ),
}  # fmt: skip


def alternatives(path: str) -> Iterator[str]:
    """Globs of a path in the docs: {a,b} all of them, [a/|b/] any or nothing, <name> anything."""
    path = re.sub(r"<\w+>", "*", path)
    if found := re.search(r"\{([^}]*)\}|\[([^\]]*)\]", path):
        parts = found[1].split(",") if found[1] is not None else ["", *found[2].split("|")]
        for part in parts:
            yield from alternatives(path[: found.start()] + part + path[found.end() :])
        return
    yield path


def is_there(root: Path, path: str) -> bool:
    found = [next(root.glob(glob.rstrip("/")), None) for glob in alternatives(path)]
    return any(found) if "[" in path else all(found)


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
    mine = [line for line in drawn.splitlines() if layout.line and line.startswith(layout.line)]
    needed = [line for line in drawn.splitlines() if not any(word in line for word in ELSE)]
    for line in mine or needed:
        path = line.split()[0]
        spellings = [path, *re.findall(r" or (\S+)", line), path.removeprefix("data/")]
        spellings += [f"assembly101/{path}" for path in spellings]
        spellings += [path.replace("50salads", "gtea") for path in spellings]
        assert any(is_there(tmp_path, path) for path in spellings), line
    values = merged(merged(yaml.safe_load(params), layout.change), {"probe": FEW_GROUPS})
    project(tmp_path / "project", monkeypatch, values, tmp_path)
    ends_well("data", "scan")
    ends_well("data", "check")


def test_every_source_is_followed() -> None:
    named = set(re.findall(r"^\| `(\w+)` \|", TEXT.partition("## Sources")[2], re.M))
    assert named == {"demo", "folder", "archive", *SECTIONS}
    assert {layout.source for layout in LAYOUTS.values()} == set(SECTIONS)
    drawn = [line for blocks in SECTIONS.values() for line in blocks[0][1].splitlines()]
    others = [line for line in drawn if any(word in line for word in ELSE)]
    lines = [layout.line for layout in LAYOUTS.values() if layout.line]
    assert [line for line in others if not any(map(line.startswith, lines))] == []


def test_own_videos_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every `pjepa data` command of the page, in its order."""
    films = tmp_path / "films"
    write_own_videos(films)
    project(tmp_path / "project", monkeypatch, {}, tmp_path)
    steps = OWN.partition("`data.folder.labels` may also name")[0]
    commands = re.findall(r"`((?:pjepa data [^`]*?)(?: && pjepa data [^`]*?)*)`", steps)
    assert len(commands) >= 5
    for command in commands:
        for part in command.replace("\n  ", "").split(" && "):
            words = part.replace("/path/to/videos", str(films)).replace("FOLDER", str(films))
            ends_well(*words.replace("TAKE", "d").split()[1:])
    assert Path("d.png").exists()
    assert check_params().pooler.kind == "action"  # the last init of the section


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
