"""Labels of own videos as other people write them: encodings, spreadsheets, control characters."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest

from pjepa.core.text import sheet_cell, text_of_cell
from pjepa.live.predict import write_table
from pjepa.takes.annotations.text_files import Note
from pjepa.takes.source import Source
from pjepa.ui.console import InputError, print_table, say
from tests.takes.own_videos import write_video
from tests.takes.test_hostile import MARK, source, write

HEAD = "video,start,end,label\n"


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("videos")
    for name in ("x.mp4", "a, b.mp4", unicodedata.normalize("NFD", "Über 日本.mp4")):
        write_video(root / "mine" / name, ("cut",), 1.0)
    return root


def labelled(root: Path, text: str | bytes, name: str = "labels.csv") -> Source:
    path = root / "mine" / name
    write(name, text)(root / "mine")
    try:
        return source(root, "folder", folder={"path": "mine", "labels": name})
    finally:
        path.unlink()


READ = {
    "a mark and CRLF": MARK + f"{HEAD}x,0,1,cut\n".replace("\n", "\r\n").encode(),
    "CR alone": f"{HEAD}x,0,1,cut".replace("\n", "\r"),
    "quoted commas": f'{HEAD}"a, b.mp4",0,1,cut',
    "composed letters": f"{HEAD}Über 日本,0,1,cut",
    "columns without a name": "video,start,end,label,,\nx,0,1,cut,,\n,,,,,",
    "decimal commas": "video;start;end;label\nx;0,0;1,0;cut",
}


@pytest.mark.parametrize("text", READ.values(), ids=READ)
def test_labels_that_are_read(videos: Path, text: str | bytes) -> None:
    (segment,) = labelled(videos, text).segments
    assert (segment.start_s, segment.end_s) == (0.0, 1.0)


def studio(annotations: object) -> str:
    return json.dumps([{"data": {"video": "x.mp4"}, "annotations": annotations}])


REFUSED = {
    "labels.csv": {
        f'{HEAD}x,0,0.5,"cut\nx,0.5,1,stir\n': r"line 2: a quote is not closed",
        f"{HEAD}x,0,inf,cut": r"line 2: a segment from 0 to inf",
        f"{HEAD}x\0,0,1,cut": r"line 2: video 'x\\x00' is not in the folder",
        "video,start,end,label,start\n": r"two columns of one name",
    },
    "r.json": {
        "": r"r.json: not JSON",
        "[" * 100_000: r"r.json: not JSON",
        '[{"video": "x", "start": 0, "begin": 1, "end": 1, "label": "cut"}]': r"\[0\]: two keys",
        studio([3]): r"task 0: annotations: expected a list of objects, found \[3\]",
        studio([{"result": "x"}]): r"task 0: result: expected a list of objects",
        studio([{"result": [{"value": {"timelinelabels": "cut"}}]}]): r"expected a list of names",
    },
    "x.eaf": {"": r"x.eaf: not XML"},
    "x.vtt": {"": r"x.vtt, line 1: expected WEBVTT"},
}


@pytest.mark.parametrize(
    ("name", "text", "message"), [(n, t, m) for n, v in REFUSED.items() for t, m in v.items()]
)
def test_labels_that_are_refused(videos: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        labelled(videos, text, name)


def test_cells_that_spreadsheets_would_compute_come_back(tmp_path: Path) -> None:
    """`=cmd|...` is a label like any other, and no formula in what is written."""
    labels = ["=1+1", "+x", "-x", "@x", "'quoted'", "plain", "\tx"]
    cells = [sheet_cell(label) for label in labels]
    assert [cell[0] for cell in cells] == ["'", "'", "'", "'", "'", "p", "'"]
    assert [text_of_cell(cell) for cell in cells] == labels
    write_video(tmp_path / "mine/-x.mp4", ("cut",), 1.0)
    steps = [(0.0, 0.5, "=1+1", 0.9), (0.5, 1.0, "plain", 0.9)]
    write_table(tmp_path, {"-x": {"video": "-x.mp4", "steps": steps}})
    (tmp_path / "segments.csv").rename(tmp_path / "mine/labels.csv")
    assert "'-x.mp4,0.000,0.500,'=1+1,0.9000" in (tmp_path / "mine/labels.csv").read_text()
    found = source(tmp_path, "folder", folder={"path": "mine"})
    assert found.classes.names == ("=1+1", "plain")


def test_control_characters_never_reach_a_terminal(
    videos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    note = Note("takes", ("\x1b[2Jgone", "a\nb", "\x9b31m"))
    assert note.line() == "takes:  [2Jgone, a b,  31m"
    with pytest.raises(InputError) as caught:
        labelled(videos, f"{HEAD}\x1b[2J,0,1,cut")
    capsys.readouterr()
    assert "\x1b" not in str(caught.value)
    assert str(InputError("no video a\x1b]0;owned\x07.mp4\n")) == "no video a ]0;owned .mp4"
    say("takes: \x1b[2Jgone")
    print_table("t", ["take"], [["\x9b31mred"]])
    said = capsys.readouterr()
    assert (said.err, said.out) == ("takes:  [2Jgone\n", "t\ntake\n31mred\n")


def test_text_of_another_encoding_is_named(videos: Path) -> None:
    with pytest.raises(InputError, match=r"labels.csv: not UTF-8 text \(byte 0\); save it as"):
        labelled(videos, f"{HEAD}x,0,1,cut".encode("utf-16"))


def test_columns_that_are_not_read_are_said(videos: Path) -> None:
    """A misspelt `participant` would leak a person between splits."""
    notes = " ".join(
        note.line()
        for note in labelled(videos, "video,start,end,label,particpant\nx,0,1,cut,anna").notes
    )
    assert "columns not used in labels.csv: particpant" in notes
    notes = " ".join(note.line() for note in labelled(videos, f"{HEAD}x,0,9,cut").notes)
    assert "1 segments end after their video" in notes
