"""Label files of own videos: formats, encodings, spreadsheets, and what is refused, in one line."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pjepa.core.text import sheet_cell, text_of_cell
from pjepa.live.formats import Labelled, PredictedStep, eaf_text, vtt_text
from pjepa.live.predict import write_table
from pjepa.takes.annotations.text_files import Note
from pjepa.takes.config import DataConfig
from pjepa.takes.source import Source
from pjepa.takes.sources.registry import open_source
from pjepa.ui.console import InputError, print_table, say
from tests.worlds.own_videos import write_video

HEAD = "video,start,end,label\n"
FRAMES = "video,start_frame,end_frame,label"
RATE = 8.0  # of write_video


def source(root: Path, labels: str = "labels.csv", **values: object) -> Source:
    own = {"path": "mine", "labels": labels, "frame_rate": RATE, **values}
    return open_source(DataConfig.model_validate({"source": "folder", "folder": own}), root)


@pytest.fixture(scope="module")
def videos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of films: x.mp4, 6 s at 8 frames per second, and short ones with other names."""
    root = tmp_path_factory.mktemp("videos")
    write_video(root / "mine/x.mp4", ("cut", "stir", "wait"))
    for name in ("a, b.mp4", unicodedata.normalize("NFD", "Über 日本.mp4")):
        write_video(root / "mine" / name, ("cut",), 1.0)
    return root


def labelled(root: Path, text: str | bytes, name: str = "labels.csv", **values: Any) -> Source:
    """The source with this label file, which is gone afterwards."""
    path = root / "mine" / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    try:
        return source(root, name, **values)
    finally:
        path.unlink()


def spans(found: Source, take: str | None = None) -> list[tuple[float, float, str]]:
    names = found.classes.names
    mine = [s for s in found.segments if take in (None, s.take_id)]
    return [(s.start_s, s.end_s, names[s.label]) for s in mine]


def studio(*results: dict[str, Any], **task: object) -> str:
    annotations = [{"result": [{"value": value} for value in results]}]
    return json.dumps([{"data": {"video": "x.mp4"}, "annotations": annotations, **task}])


SPAN = {"ranges": [{"start": 5, "end": 20}], "timelinelabels": ["cut"]}
EXPORT = studio(SPAN, {"choices": ["good"]}, id=3, data={"video": "/data/upload/1/0a1b2c3d-x.mp4"})
TWICE = json.dumps([{**json.loads(EXPORT)[0], "annotations": [
    {"result": [{"value": {"ranges": [{"start": 1, "end": 2}]}}]},
    *json.loads(EXPORT)[0]["annotations"],
]}])  # fmt: skip
LOCAL = [{"video": "/data/local-files/?d=mine/x.mp4", "id": 1, "labels": [SPAN]}]
VTT = "WEBVTT - steps\n\nNOTE by hand\n\n1\n00:00.500 --> 00:02.500 align:start\n<v Ann>cut\n"
SAME = [  # each says that x.mp4 shows `cut` from 0.5 to 2.5 s
    ("semicolons.csv", "\ufeffVideo;Start;End;Label\nx.mp4;0.5;0:02,5;cut\n\n"),
    ("tabs.tsv", "file\tbegin\tstop\taction\r\nx\t0.5\t2.5\tcut\r\n"),
    ("marked.csv", f"\ufeff{HEAD}x,0.5,2.5,cut\n".replace("\n", "\r\n")),
    ("old.csv", f"{HEAD}x,0.5,2.5,cut".replace("\n", "\r")),
    ("unnamed.csv", "video,start,end,label,,\nx,0.5,2.5,cut,,\n,,,,,"),
    ("commas.csv", "video;start;end;label\nx;0,5;2,5;cut"),
    ("empty.csv", f"{HEAD}x,0.5,2.5,cut\nx,3,3,cut\nx,6,6,cut\n"),
    ("frames.csv", f"{FRAMES},fps\nx,15,75,cut,30\nx,,,,\n"),
    ("rate.csv", FRAMES.replace("_", " ").title() + "\nx,4,20,cut"),
    ("rows.json", '[{"video": "x.mp4", "start": "00:00,5", "end": "0:00:02.5", "label": "cut"}]'),
    ("frames.json", '[{"video": "x", "start_frame": 4, "end_frame": 20, "label": "cut"}]'),
    ("studio.json", TWICE),
    ("local.json", json.dumps(LOCAL)),
    ("seconds.json", studio({"start": 0.5, "end": 2.5, "labels": ["cut"]})),
    ("x.vtt", f"{VTT}\n00:00:05.000 --> 00:00:06.000\n"),
]


@pytest.mark.parametrize(("name", "text"), SAME)
def test_every_format_says_the_same(videos: Path, name: str, text: str) -> None:
    assert spans(labelled(videos, text, name)) == [(0.5, 2.5, "cut")]


@pytest.mark.parametrize(
    ("name", "text", "note"),
    [
        ("studio.json", TWICE, "regions that are no labelled spans of time: not used: studio.json"),
        ("studio.json", TWICE, "tasks annotated more than once: the last counts: studio.json (1)"),
        ("x.vtt", f"{VTT}\n00:05.0 --> 00:06.0\n", "cues without text not used: x.vtt (1)"),
        ("labels.csv", f"{HEAD}x,0,2,cut\nx,3,3,cut", "1 segments of no length left out: x"),
        ("labels.csv", f"{HEAD}x,0,9,cut", "1 segments end after their video (wrong file?): x"),
        # A misspelt `participant` would leak a person between splits.
        (
            "labels.csv", "video,start,end,label,particpant\nx,0,1,cut,anna",
            "columns not used in labels.csv: particpant",
        ),
    ],
)  # fmt: skip
def test_what_is_not_used_is_said(videos: Path, name: str, text: str, note: str) -> None:
    assert any(note in found.line() for found in labelled(videos, text, name).notes)


def test_names_with_commas_and_composed_letters(videos: Path) -> None:
    found = labelled(videos, f'{HEAD}"a, b.mp4",0,1,cut\nÜber 日本,0,1,cut')
    assert spans(found) == [(0.0, 1.0, "cut")] * 2


REFUSED = {
    "labels.csv": [
        ("", r"line 1: expected the columns video,start,end,label"),
        ("video,start,label\nx,1,cut", r"line 1: .* found video,start,label: no column end"),
        ("video,start,end,label,start\n", r"two columns of one name"),
        (f"{HEAD}x,0,2,cut\ny.mp4,0,2,cut", r"labels.csv, line 3: video 'y.mp4' is not in the fo"),
        (f"{HEAD}../x.mp4,1,2,cut", r"line 2: video '../x.mp4' is not in the folder"),
        (f"{HEAD}x\0,0,1,cut", r"line 2: video 'x\\x00' is not in the folder"),
        (f"{HEAD}x,zero,2,cut", r"line 2: expected seconds or h:mm:ss, found 'zero'"),
        (f"{HEAD}x,2,1,cut", r"line 2: a segment from 2 to 1 s; expected 0 <= start <= end"),
        (f"{HEAD}x,-1,1,cut", r"line 2: a segment from -1 to 1 s"),
        (f"{HEAD}x,nan,1,cut", r"line 2: a segment from nan"),
        (f"{HEAD}x,0,inf,cut", r"line 2: a segment from 0 to inf"),
        (f"{HEAD}x,7,8,cut", r"line 2: starts at 7 s, but the video ends at 6.00 s"),
        (f"{HEAD}x,1,2,", r"line 2: expected start, end and label, found \['1', '2', ''\]"),
        (f"{HEAD},1,2,cut", r"line 2: no video named"),
        (f"{HEAD}x,1,2,cut, then stir", r"line 2: more cells than the header's 4; quote commas"),
        (f'{HEAD}x,0,0.5,"cut\nx,0.5,1,stir\n', r"line 2: a quote is not closed"),
        (f"{HEAD}x,0,1,cut".encode("utf-16"), r"labels.csv: not UTF-8 text \(byte 0\); save it as"),
        (f"{HEAD[:-1]},split\nx,1,2,cut,trian", r"line 2: split 'trian'; .*did you mean 'train'"),
        (f"{HEAD[:-1]},split\nx,1,2,cut,train\nx,2,3,cut,test", r"line 3: split 'test', but 'trai"),
        (f"{FRAMES},fps\nx,0,soon,cut,30", r"line 2: expected frame numbers \(and fps\)"),
        (f"{FRAMES},fps\nx,0,10,cut,0", r"line 2: fps 0; expected frames per second"),
        (f"{FRAMES},fps\nx,0,10,,30", r"line 2: expected start, end and label"),
    ],
    "r.json": [
        ("", r"r.json: not JSON"),
        ("[{]", r"r.json: not JSON"),
        ("[" * 100_000, r"r.json: not JSON"),
        ("[3]", r"r.json: expected a list of objects"),
        ('[{"video": "x", "start": 0, "begin": 1, "end": 1, "label": "cut"}]', r"\[0\]: two keys"),
        (studio(annotations=[3]), r"task 0: annotations: expected a list of objects, found \[3\]"),
        (studio(annotations=[{"result": "x"}]), r"task 0: result: expected a list of objects"),
        (studio({"timelinelabels": "cut"}), r"expected a list of names"),
        (studio({"start": "x", "end": 1, "labels": ["a"]}), r"a range with start and end"),
        (studio(data={"video": "x.txt"}), r"task 0: names no video"),
        (studio(data={"video": "http://[x.mp4"}), r"task 0: names no video"),
    ],
    "x.eaf": [("", r"x.eaf: not XML"), ("<a/>", r"x.eaf: expected ANNOTATION_DOCUMENT, found a")],
    "x.vtt": [
        ("", r"x.vtt, line 1: expected WEBVTT"),
        ("1\n00:00.000 --> soon\nx\n", r"x\.vtt, line 1: expected WEBVTT"),
        ("WEBVTT\n\n00:00.000 --> soon\nx\n", r"x\.vtt, line 3: expected seconds"),
    ],
    "labels.doc": [("x", r"labels.doc: expected one of .csv, .tsv, .json, .eaf, .vtt")],
}


@pytest.mark.parametrize(
    ("name", "text", "message"), [(n, t, m) for n, cases in REFUSED.items() for t, m in cases]
)
def test_faults_name_file_and_line(videos: Path, name: str, text: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        labelled(videos, text, name)
    assert "\n" not in str(caught.value)


def test_annotations_that_are_not_there(videos: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere.csv: no such file; set data.folder.labels"):
        source(videos, "nowhere.csv")
    with pytest.raises(InputError, match="expected a path inside the videos' folder"):
        source(videos, "../labels.csv")
    with pytest.raises(InputError, match=r"no annotation file \(.csv"):
        source(videos, ".")


@pytest.mark.parametrize(("labels", "text"), [(".", vtt_text), ("labels", eaf_text)])
def test_label_files_of_videos_with_one_name_lie_in_their_folders(
    tmp_path: Path, labels: str, text: Callable[[Labelled], str]
) -> None:
    for folder, step in (("monday", "cut"), ("tuesday", "stir")):
        write_video(tmp_path / f"mine/{folder}/cam1.mp4", (step,))
        steps = Labelled(f"{folder}/cam1.mp4", 8.0, [PredictedStep(0.0, 1.0, step, 1.0)])
        file = tmp_path / "mine" / labels / folder / f"cam1.{text.__name__[:3]}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text(steps))
    found = source(tmp_path, labels)
    assert spans(found, "monday/cam1") == [(0.0, 1.0, "cut")]
    assert spans(found, "tuesday/cam1") == [(0.0, 1.0, "stir")]


def test_subtitles_without_blank_lines(videos: Path) -> None:
    """Numbers between cues are theirs where cues are numbered, and text where they are not."""
    cues = ["00:00.000 --> 00:01.000\ncut &amp; peel", "00:01.000 --> 00:02.000\nstir\ntwice"]
    cues += ["00:02.000 --> 00:03.000\nwait"]
    expected = [(0.0, 1.0, "cut & peel"), (1.0, 2.0, "stir twice"), (2.0, 3.0, "wait")]
    plain = "WEBVTT\n\n" + "\n".join(cues)
    numbered = "WEBVTT\n" + "\n".join(f"{k}\n{cue}" for k, cue in enumerate(cues, 1))
    for text in (plain, numbered, numbered.replace("\n", "\r\n")):
        assert spans(labelled(videos, text, "x.vtt")) == expected
    found = labelled(videos, plain.replace("peel", "peel\n7"), "x.vtt")
    assert spans(found)[0] == (0.0, 1.0, "cut & peel 7")


def test_frames_count_at_the_rate_that_is_given_or_the_videos(videos: Path) -> None:
    text = f"{FRAMES}\nx,0,16,cut\nx,16,24,stir"
    assert spans(labelled(videos, text, frame_rate=None)) == [(0, 2, "cut"), (2, 3, "stir")]
    assert spans(labelled(videos, text, frame_rate=16)) == [(0, 1, "cut"), (1, 1.5, "stir")]


def test_classes_sort_naturally(videos: Path) -> None:
    labels = ["G10", "G2", "G1", "cut 2b", "cut 10", "cut"]
    rows = "\n".join(f"x,{k},{k + 0.5},{label}" for k, label in enumerate(labels))
    names = labelled(videos, f"{HEAD}{rows}").classes.names
    assert names == ("G1", "G2", "G10", "cut", "cut 2b", "cut 10")


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
    found = source(tmp_path)
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
