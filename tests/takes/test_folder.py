"""Own videos: what a CSV, a JSON, an ELAN file and a Label Studio export may look like."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pjepa.live.formats import Labelled, PredictedStep, eaf_text, vtt_text
from pjepa.takes.annotations.rows import seconds
from pjepa.takes.config import DataConfig
from pjepa.takes.source import Source
from pjepa.takes.sources.registry import open_source
from pjepa.ui.console import InputError
from tests.takes.own_videos import PLANS, write_own_videos, write_video
from tests.video.corpus import FPS as FILM_FPS
from tests.video.corpus import Film, write_film

HEAD = "video,start,end,label"
RATE = 8.0  # of write_video


def source(root: Path, labels: str | None = "labels.csv", **values: object) -> Source:
    own = {"path": "mine", "labels": labels, "frame_rate": RATE, **values}
    return open_source(DataConfig.model_validate({"source": "folder", "folder": own}), root)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_own_videos(tmp_path / "mine")
    return tmp_path


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a single video, x.mp4: 6 s at 8 frames per second."""
    folder = tmp_path_factory.mktemp("one")
    write_video(folder / "mine/x.mp4", ("cut", "stir", "wait"))
    return folder


def spans(found: Source, take: str = "x") -> list[tuple[float, float, str]]:
    names = found.classes.names
    return [(s.start_s, s.end_s, names[s.label]) for s in found.segments if s.take_id == take]


def test_csv_of_four_videos(root: Path) -> None:
    found = source(root)
    assert [row.video for row in found.videos] == [f"mine/{name}" for name in sorted(PLANS)]
    assert found.classes.names == ("cut", "stir", "wait")
    assert found.classes.background is None
    assert spans(found, "a b") == [(0, 2, "cut"), (2, 4, "stir"), (4, 6, "wait")]
    assert [t["split"] for t in found.takes].count("test") == 1
    assert source(root).takes == found.takes  # the draw is seeded
    assert source(root, background="wait").classes.background == 2


def test_unlabelled_videos_are_kept_for_pretraining(root: Path) -> None:
    labels = root / "mine/labels.csv"
    labels.write_text("\n".join(labels.read_text().splitlines()[:-3]))  # nothing about e.mkv
    found = source(root)
    assert {t["take_id"]: t["split"] for t in found.takes}["e"] == "pretrain"
    assert "1 takes without labels: split pretrain" in [note.line() for note in found.notes]
    nothing = source(root, None)
    assert {t["split"] for t in nothing.takes} == {"pretrain"}
    assert nothing.classes.names == ()


def test_rows_name_split_group_and_people(root: Path) -> None:
    lines = [f"{HEAD},split,participant,task,view"]
    for k, name in enumerate(PLANS):
        split = "test" if k == 3 else "train"
        lines += [f"{name},0,2,cut,{split},p{k // 2},soup,top", f"{name},2,4,stir,,,,"]
    (root / "mine/labels.csv").write_text("\n".join(lines))
    takes = source(root).takes
    assert [t["split"] for t in takes] == ["train", "train", "train", "test"]
    assert [t["group"] for t in takes] == ["p0", "p1", "p0", "p1"]
    assert takes[0]["task"] == "soup"


def test_a_pause_is_kept_up_to_max_gap(tmp_path: Path) -> None:
    stamps = tuple(k + (20 * FILM_FPS if k >= 40 else 0) for k in range(72))
    write_film(Film("pause.mp4", "libx264", stamps=stamps), tmp_path / "mine")
    (short,) = source(tmp_path, None).videos
    config = {"source": "folder", "max_gap_s": 60, "folder": {"path": "mine", "labels": None}}
    (long,) = open_source(DataConfig.model_validate(config), tmp_path).videos
    assert long.duration_s == pytest.approx(short.duration_s + 20, abs=0.5)


def test_equal_stems_are_told_apart(one: Path, tmp_path: Path) -> None:
    write_video(tmp_path / "mine/x.mp4", ("cut",))
    write_video(tmp_path / "mine/x.avi", ("cut",))
    assert [row.take_id for row in source(tmp_path, None).videos] == ["x.avi", "x.mp4"]
    (tmp_path / "mine/labels.csv").write_text(f"{HEAD}\nx,0,1,cut")
    with pytest.raises(InputError, match=r"line 2: video 'x' stands for x.avi, x.mp4"):
        source(tmp_path)


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


FORMATS = {
    "semicolons.csv": "\ufeffVideo;Start;End;Label\nx.mp4;0.5;0:02,5;cut\n\n",
    "tabs.tsv": "file\tbegin\tstop\taction\r\nx\t0.5\t2.5\tcut\r\n",
    "rows.json": json.dumps([{"video": "x.mp4", "start": 0.5, "end": "0:02.5", "label": "cut"}]),
    "studio.json": json.dumps(
        [
            {
                "id": 3,
                "data": {"video": "/data/upload/1/0a1b2c3d-x.mp4"},
                "annotations": [
                    {"result": [{"value": {"ranges": [{"start": 1, "end": 2}]}}]},
                    {
                        "was_cancelled": False,
                        "result": [
                            {
                                "type": "timelinelabels",
                                "value": {
                                    "ranges": [{"start": 5, "end": 20}],
                                    "timelinelabels": ["cut"],
                                },
                            },
                            {"type": "choices", "value": {"choices": ["good"]}},
                        ],
                    },
                ],
            }
        ]
    ),
    "studio-min.json": json.dumps(
        [
            {
                "video": "/data/local-files/?d=mine/x.mp4",
                "id": 1,
                "labels": [{"ranges": [{"start": 5, "end": 20}], "timelinelabels": ["cut"]}],
            }
        ]
    ),
    "studio-seconds.json": json.dumps(
        [
            {
                "data": {"audio": "s3://bucket/x.mp4"},
                "annotations": [
                    {"result": [{"value": {"start": 0.5, "end": 2.5, "labels": ["cut"]}}]}
                ],
            }
        ]
    ),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_says_the_same(one: Path, name: str) -> None:
    (one / "mine" / name).write_text(FORMATS[name])
    assert spans(source(one, name)) == [(0.5, 2.5, "cut")]


def test_what_a_studio_export_holds_besides_is_counted(one: Path) -> None:
    (one / "mine/studio.json").write_text(FORMATS["studio.json"])
    notes = " ".join(note.line() for note in source(one, "studio.json").notes)
    assert "regions that are no labelled spans of time: not used: studio.json (1)" in notes
    assert "tasks annotated more than once: the last counts: studio.json (1)" in notes


EAF = """<?xml version="1.0" encoding="UTF-8"?>
<ANNOTATION_DOCUMENT VERSION="3.0">
  <HEADER MEDIA_FILE="" TIME_UNITS="milliseconds">
    <MEDIA_DESCRIPTOR MEDIA_URL="file:///C:/somewhere/x.mp4" MIME_TYPE="video/mp4"
      RELATIVE_MEDIA_URL="./x.mp4" TIME_ORIGIN="500"/>
  </HEADER>
  <TIME_ORDER>
    <TIME_SLOT TIME_SLOT_ID="ts1" TIME_VALUE="0"/><TIME_SLOT TIME_SLOT_ID="ts2" TIME_VALUE="2000"/>
    <TIME_SLOT TIME_SLOT_ID="ts3"/>
  </TIME_ORDER>
  <TIER TIER_ID="steps" LINGUISTIC_TYPE_REF="default">
    <ANNOTATION><ALIGNABLE_ANNOTATION ANNOTATION_ID="a1" TIME_SLOT_REF1="ts1" TIME_SLOT_REF2="ts2">
      <ANNOTATION_VALUE>cut</ANNOTATION_VALUE></ALIGNABLE_ANNOTATION></ANNOTATION>
    <ANNOTATION><ALIGNABLE_ANNOTATION ANNOTATION_ID="a2" TIME_SLOT_REF1="ts2" TIME_SLOT_REF2="ts3">
      <ANNOTATION_VALUE>stir</ANNOTATION_VALUE></ALIGNABLE_ANNOTATION></ANNOTATION>
  </TIER>
  <TIER TIER_ID="notes"/>
</ANNOTATION_DOCUMENT>"""


def test_elan_files_of_a_folder(one: Path) -> None:
    (one / "mine/elan").mkdir(exist_ok=True)
    file = one / "mine/elan/any name.eaf"
    file.write_text(EAF)
    found = source(one, "elan")
    assert spans(found) == [(0.5, 2.5, "cut")]
    assert "annotations without a time or a value not used: " in found.notes[0].line()
    with pytest.raises(InputError, match=r"no tier 'hands'; tiers: steps, notes"):
        source(one, "elan", tier="hands")
    second = EAF[EAF.index('<TIER TIER_ID="steps"') : EAF.index('<TIER TIER_ID="notes"')]
    file.write_text(EAF.replace('<TIER TIER_ID="notes"/>', second.replace("steps", "hands")))
    with pytest.raises(InputError, match=r"several tiers \(steps, hands\)"):
        source(one, "elan")
    assert spans(source(one, "elan", tier="hands"))


FAULTS = {
    "": r"line 1: expected the columns video,start,end,label",
    "video,start,label\nx,1,cut": r"line 1: expected the columns .* found video,start,label",
    f"{HEAD}\nx,0,2,cut\ny.mp4,0,2,cut": r"labels.csv, line 3: video 'y.mp4' is not in the folder",
    f"{HEAD}\nx,zero,2,cut": r"line 2: expected seconds or h:mm:ss, found 'zero'",
    f"{HEAD}\nx,2,1,cut": r"line 2: a segment from 2 to 1 s; expected 0 <= start <= end",
    f"{HEAD}\nx,-1,1,cut": r"line 2: a segment from -1 to 1 s",
    f"{HEAD}\nx,nan,1,cut": r"line 2: a segment from nan",
    f"{HEAD}\nx,7,8,cut": r"line 2: starts at 7 s, but the video ends at 6.00 s",
    f"{HEAD}\nx,1,2,": r"line 2: expected start, end and label, found \['1', '2', ''\]",
    f"{HEAD}\n,1,2,cut": r"line 2: no video named",
    f"{HEAD}\nx,1,2,cut, then stir": r"line 2: more cells than the header's 4; quote commas",
    f"{HEAD}\n../x.mp4,1,2,cut": r"line 2: video '../x.mp4' is not in the folder",
    f"{HEAD},split\nx,1,2,cut,trian": r"line 2: split 'trian'; .*did you mean 'train'",
    f"{HEAD},split\nx,1,2,cut,train\nx,2,3,cut,test": r"line 3: split 'test', but 'train' in",
}


@pytest.mark.parametrize("text", FAULTS)
def test_faults_name_file_and_line(one: Path, text: str) -> None:
    (one / "mine/labels.csv").write_text(text)
    with pytest.raises(InputError, match=FAULTS[text]) as caught:
        source(one)
    assert "\n" not in str(caught.value)


def test_annotations_that_are_not_there(one: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere.csv: no such file; set data.folder.labels"):
        source(one, "nowhere.csv")
    with pytest.raises(InputError, match="expected a path inside the videos' folder"):
        source(one, "../labels.csv")
    (one / "mine/broken.json").write_text("[{]")
    with pytest.raises(InputError, match=r"broken.json: not JSON"):
        source(one, "broken.json")
    (tmp_path / "mine").mkdir()
    with pytest.raises(InputError, match="no video in it"):
        source(tmp_path)


def test_unreadable_videos_are_listed(root: Path) -> None:
    (root / "mine/bad.mp4").write_text("no video")
    (root / "mine/.hidden.mp4").write_text("not looked at")
    with pytest.raises(InputError, match=r"1 takes with no readable video .*bad.mp4.*=skip"):
        source(root)
    own = {"path": "mine"}
    config = DataConfig.model_validate({"source": "folder", "folder": own, "missing": "skip"})
    found = open_source(config, root)
    assert len(found.videos) == 4
    assert "bad.mp4" in found.skipped["no readable video"][0]


def test_a_name_in_another_encoding_is_refused(root: Path) -> None:
    (root / "mine" / os.fsdecode(b"caf\xe9.mp4")).write_text("from an old archive")
    with pytest.raises(InputError, match=r"mine/caf.xe9.mp4: the name is not UTF-8 text; rename"):
        source(root)


def test_labelled_without_a_split_beside_others_is_refused(root: Path) -> None:
    lines = (root / "mine/labels.csv").read_text().splitlines()
    text = [f"{lines[0]},split", f"{lines[1]},train", *(f"{line}," for line in lines[2:])]
    (root / "mine/labels.csv").write_text("\n".join(text))
    with pytest.raises(InputError, match=r"take d: labelled but without a split"):
        source(root)


@given(st.integers(0, 9), st.integers(0, 59), st.integers(0, 59999))
def test_clock_times(hours: int, minutes: int, milli: int) -> None:
    text = f"{hours}:{minutes:02d}:{milli / 1000:06.3f}"
    expected = hours * 3600 + minutes * 60 + milli / 1000
    assert seconds(text, "") == pytest.approx(expected)
    assert seconds(text.replace(".", ","), "") == pytest.approx(expected)
    assert seconds(str(expected), "") == pytest.approx(expected)


def test_subtitles_are_steps(one: Path) -> None:
    """Headers, notes, numbers, settings, voices and escapes; the file's name is the video's."""
    (one / "mine/x.vtt").write_text(
        "WEBVTT - steps\n\nNOTE made by hand\n\n1\n00:00.000 --> 00:02.000 align:start\n"
        "<v Ann>cut &amp; peel\n\n00:00:02.000 --> 00:00:04.500\nstir\n\n"
        "00:00:05.000 --> 00:00:06.000\n",
        encoding="utf-8",
    )
    found = source(one, "x.vtt")
    names = found.classes.names
    steps = [(s.start_s, s.end_s, names[s.label]) for s in found.segments]
    assert steps == [(0.0, 2.0, "cut & peel"), (2.0, 4.5, "stir")]
    assert any("cues without text not used: x.vtt (1)" in note.line() for note in found.notes)
    (one / "mine/x.vtt").write_text("1\n00:00.000 --> soon\nx\n")
    with pytest.raises(InputError, match=r"x\.vtt, line 1: expected WEBVTT"):
        source(one, "x.vtt")
    (one / "mine/x.vtt").write_text("WEBVTT\n\n00:00.000 --> soon\nx\n")
    with pytest.raises(InputError, match=r"x\.vtt, line 3: expected seconds"):
        source(one, "x.vtt")
    (one / "mine/x.vtt").unlink()


def test_subtitles_without_blank_lines(one: Path) -> None:
    """Numbers between cues are theirs where cues are numbered, and text where they are not."""
    cues = ["00:00.000 --> 00:01.000\ncut", "00:01.000 --> 00:02.000\nstir\ntwice"]
    cues += ["00:02.000 --> 00:03.000\nwait"]
    expected = [(0.0, 1.0, "cut"), (1.0, 2.0, "stir twice"), (2.0, 3.0, "wait")]
    plain = "WEBVTT\n\n" + "\n".join(cues)
    numbered = "WEBVTT\n" + "\n".join(f"{k}\n{cue}" for k, cue in enumerate(cues, 1))
    for text in (plain, numbered, numbered.replace("\n", "\r\n")):
        (one / "mine/x.vtt").write_text(text, newline="")
        assert spans(source(one, "x.vtt")) == expected
    (one / "mine/x.vtt").write_text(plain.replace("cut", "cut\n7"))
    assert spans(source(one, "x.vtt"))[0] == (0.0, 1.0, "cut 7")
    (one / "mine/x.vtt").unlink()


FRAMES = "video,start_frame,end_frame,label"


def test_rows_in_frames(one: Path) -> None:
    """Frames count from 0, the end is exclusive; at `fps`, else at frame_rate or the video's."""
    labels = one / "mine/labels.csv"
    labels.write_text(f"{FRAMES},fps\nx,0,60,cut,30\nx,20,24,stir,8\nx,,,,\n")
    assert spans(source(one)) == [(0.0, 2.0, "cut"), (2.5, 3.0, "stir")]
    labels.write_text(FRAMES.replace("_", " ").title() + "\nx,0,16,cut\nx,16,24,stir")
    assert spans(source(one, frame_rate=None)) == [(0.0, 2.0, "cut"), (2.0, 3.0, "stir")]
    assert spans(source(one, frame_rate=16)) == [(0.0, 1.0, "cut"), (1.0, 1.5, "stir")]
    rows = [{"video": "x", "start_frame": 0, "end_frame": 50, "fps": 25, "label": "cut"}]
    (one / "mine/rows.json").write_text(json.dumps(rows))
    assert spans(source(one, "rows.json")) == [(0.0, 2.0, "cut")]
    for row, message in {
        "x,0,soon,cut,30": r"line 2: expected frame numbers \(and fps\)",
        "x,0,10,cut,0": r"line 2: fps 0; expected frames per second",
        "x,0,10,,30": r"line 2: expected start, end and label",
    }.items():
        labels.write_text(f"{FRAMES},fps\n{row}")
        with pytest.raises(InputError, match=message):
            source(one)


def test_rows_of_no_length_are_left_out_and_counted(one: Path) -> None:
    (one / "mine/labels.csv").write_text(f"{HEAD}\nx,0,2,cut\nx,3,3,stir\nx,6,6,stir\n")
    found = source(one)
    assert spans(found) == [(0.0, 2.0, "cut")]
    assert "2 segments of no length left out: x" in [note.line() for note in found.notes]


def test_classes_sort_naturally(one: Path) -> None:
    labels = ["G10", "G2", "G1", "cut 2b", "cut 10", "cut"]
    rows = [f"x,{k},{k + 0.5},{label}" for k, label in enumerate(labels)]
    (one / "mine/labels.csv").write_text("\n".join([HEAD, *rows]))
    assert source(one).classes.names == ("G1", "G2", "G10", "cut", "cut 2b", "cut 10")
