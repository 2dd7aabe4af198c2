"""Public data sets as they come from other people: newlines, quotes, holes, twins, kinds, escapes.

Every loader reads what can be read, says what it left out, and names file and place of what cannot
be read, in one line; none ends in a traceback. The authors' archives have their table in
test_archive.py, own labels in test_labels.py.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pjepa.takes.config import DataConfig
from pjepa.takes.source import Source, checked_source
from pjepa.takes.sources.registry import open_source
from pjepa.ui.console import InputError
from tests.worlds.assembly import SEQUENCES, VIEW, write_annotations, write_lmdb
from tests.worlds.bundles import write_bundle, write_egoprocel
from tests.worlds.egoexo4d import TAKES, Download, segment

Change = Callable[[Path], Any]
SETS = ("mstcn", "egoprocel", "assembly101", "egoexo4d")


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a miniature of every set."""
    root = tmp_path_factory.mktemp("worlds")
    write_bundle(root / "mstcn")
    write_egoprocel(root / "egoprocel", annotations_fps=15.0)
    write_annotations(root / "assembly101")
    write_lmdb(root / "assembly101" / VIEW)
    Download(root)
    return root


@pytest.fixture
def root(worlds: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A root with a copy of the set that the case is about."""
    name = request.node.callspec.params["name"]
    shutil.copytree(worlds / name, tmp_path / name)
    return tmp_path


def source(root: Path, name: str, **values: Any) -> Source:
    own = {"mstcn": {"dataset": "mstcn", "fps": 15, "lookahead_s": 0, "time_first": False}}
    config = DataConfig.model_validate({"source": name, **own, **values})
    return checked_source(open_source(config, root))


@pytest.mark.parametrize("name", SETS)
def test_other_newlines_change_nothing(root: Path, name: str) -> None:
    """Every text file with a mark, CRLF and empty lines at its end; tabs in the mapping."""
    plain = source(root, name)
    for path in (root / name).rglob("*"):
        if path.suffix in (".txt", ".csv", ".bundle", ".json", ".train", ".test"):
            text = path.read_bytes().replace(b"\n", b"\r\n")
            text = text.replace(b" ", b"\t", 1) if path.name == "mapping.txt" else text
            path.write_bytes(b"\xef\xbb\xbf" + text + b"\r\n\r\n")
    assert source(root, name) == plain


def write(name: str, content: str | bytes) -> Change:
    data = content if isinstance(content, bytes) else content.encode()
    return lambda base: (base / name).write_bytes(data)


def add(name: str, more: str) -> Change:
    return lambda base: (base / name).write_text((base / name).read_text() + more)


def gone(name: str) -> Change:
    return lambda base: (base / name).unlink()


def every(*changes: Change) -> Change:
    return lambda base: [change(base) for change in changes]


def save(name: str, *shape: int) -> Change:
    return lambda base: np.save(base / f"features/{name}.npy", np.zeros(shape, np.float32))


def pickled(base: Path) -> None:
    np.save(base / f"features/{S1}.npy", np.array([{}]), allow_pickle=True)


def turn(base: Path) -> None:
    for path in base.glob("features/*.npy"):
        np.save(path, np.load(path).T)


def slow(base: Path) -> None:
    for name in ("MECCANO/0003", "pc_assembly/Head_11"):
        (base / f"annotations/{name}.csv").write_text("0,900,1 stir")


def edit(name: str, change: Callable[[Any], Any]) -> Change:
    def apply(base: Path) -> None:
        value = json.loads((base / name).read_text())
        change(value)
        (base / name).write_text(json.dumps(value))

    return apply


def takes(change: Callable[[Any], Any]) -> Change:
    return edit("takes.json", change)


def keysteps(number: int, **values: object) -> Change:
    return edit(KEYSTEPS.format("train"), lambda file: file["segments"][number].update(values))


S1, TRUTH, TRAIN = "S1_Cheese_C1", "groundTruth/S1_Cheese_C1.txt", "splits/train.split1.bundle"
ACTIONS = "coarse-annotations/actions.csv"
COARSE = "coarse-annotations/coarse_splits/train_coarse_assembly.txt"
FIRST = f"assembly_{SEQUENCES[0]}.txt"
LABELS = f"coarse-annotations/coarse_labels/{FIRST}"
MAPPING = "annotations/keystep_benchmark/label_mapping.csv"
KEYSTEPS = "annotations/keystep_benchmark/keystep_segment_{}.json"
AGAIN = segment(TAKES[0], 0.0, 1.0, 0)
REFUSED: dict[str, list[tuple[Change, str]]] = {
    "mstcn": [
        (write("mapping.txt", ""), r"mapping.txt: ids .* without a gap, found none"),
        (write("mapping.txt", "0 take\n1 open\n3 pour"), r"without a gap, found 0 to 3 for 3"),
        (write("mapping.txt", "0 take\n1"), r"mapping.txt, line 2: expected `<id> <name>`, found"),
        (write("mapping.txt", "0 take\n1 take"), r"mapping.txt, line 2: .* twice"),
        (write(TRUTH, "take\nopne"), rf"{S1}.txt, line 2: no class 'opne'.*did you mean 'open'"),
        (write(TRUTH, ""), rf"{S1}.txt: no label"),
        (write(TRUTH, "café".encode("latin-1")), rf"{S1}.txt: not UTF-8 text \(byte 3\)"),
        (write(TRAIN, "../../etc/passwd.txt"), r"passwd.*expected a path inside"),
        (write(TRAIN, "/etc/passwd"), r"no features \(/etc/passw"),
        (write(TRAIN, "S4_Coffee_C1.txt"), r"'S4_Coffee_C1' is in train and in test"),
        (write(TRAIN, f"{S1}.txt\n{S1}.txt"), r"split1.bundle, line 2: .* twice"),
        (write(TRAIN, "S9_Tea_C1.txt"), r"1 takes with no features \(S9_Tea_C1\).*missing=skip"),
        (write(f"features/{S1}.npy", b""), rf"{S1}.npy: not a .npy array"),
        (pickled, rf"{S1}.npy: not a .npy array"),
        (save(S1, 8, 0), rf"1 takes with no features \({S1}\)"),
        (save(S1, 5), r"expected a 2-D array of floats, found float32 \[5\]"),
        (turn, r"160 labels: time stands first; set data.mstcn.time_first: true"),
    ],
    "egoprocel": [
        (turn, r"time stands last; FACT's"),
        (write("annotations/MECCANO/0003.csv", "0.0,1.5"), r"0003.csv, line 1: expected `start, e"),
        (write("annotations/MECCANO/0003.csv", "0.0,x,1 stir"), r"line 1: expected .* found 'x'"),
        (slow, r"features' rate differs between videos .*; set data.egoprocel.fps"),
    ],
    "assembly101": [
        (add(ACTIONS, "\n4"), r"actions.csv, line 6: action 4 '': expected each once"),
        (add(ACTIONS, "\n3,0,0,other,v,n"), r"line 6: action 3 'other'"),
        (add(ACTIONS, "\n4,0,0,inspect toy,v,n"), r"line 6: action 4 'inspect toy'"),
        (add(ACTIONS, "\n9,0,0,other,v,n"), r"action_id must run from 0 without a gap"),
        (write(ACTIONS, ""), r"actions.csv, line 1: expected the columns action_id"),
        (add(COARSE, f"\n{FIRST}\t1"), r"train_coarse_assembly.txt, line 2: .* twice"),
        (add(COARSE, f"\nassembly_{SEQUENCES[1]}.txt\t1"), r"is in train and in val"),
        (write(COARSE, "assembly_../../etc/passwd.txt\t1"), r"expected a path inside"),
        (write(f"{VIEW}/data.mdb", b"no lmdb" * 1000), r"not an LMDB environment"),
        (write(LABELS, "1\t2\tatach wheel\t"), rf"{FIRST}, line 1: no .*mean 'attach wheel'\?"),
        (write(LABELS, "10\t5\tinspect toy\t"), r"line 1: frames 10 to 5; expected the end not be"),
        (write(LABELS, "1,2,inspect toy"), r"line 1: expected `start TAB end TAB action`"),
        (write(LABELS, ""), r"no segment"),
        (write(LABELS, "7\t7\tinspect toy\t"), r"no segment"),
        (lambda base: (base / VIEW).rename(base / "C1"), r"no features of view 'C10119.*01.view"),
    ],
    "egoexo4d": [
        (gone("takes.json"), r"takes.json: no such file; fetch it"),
        (write("takes.json", b'["\xe9"]'), r"takes.json: not UTF-8 text"),
        (takes(lambda t: t[0].pop("take_name")), r"\[0\]: expected the key 'take_name'"),
        (takes(lambda t: t.append(t[0])), r"takes.json, \[3\]: take_uid .* appears twice"),
        (takes(lambda t: t[1].update(take_name=TAKES[0])), r"take_name 'uni_cooking_01_2' appears"),
        (takes(lambda t: t[0].update(root_dir="../../etc")), r"path inside the data set's folder"),
        (
            takes(lambda t: t[0].update(frame_aligned_videos=[1])),
            r"frame_aligned_videos: expected cameras by name",
        ),
        (takes(lambda t: t[0].update(take_uid=[1])), r"no entry in takes.json \(uni_cooking_01_2"),
        (
            edit(KEYSTEPS.format("val"), lambda value: value.update(segments=3)),
            r"keystep_segment_val.json: segments: expected a list",
        ),
        (keysteps(0, start_time="soon"), r"segments\[0\]: start_time: expected seconds"),
        (keysteps(0, label_id="x"), r"segments\[0\]: label_id: expected a whole"),
        (keysteps(0, label_id=2), r"_train.json, segments\[0\]: .* 2, but step 12 has label 1"),
        (keysteps(0, label_id=9, step_unique_id=999), r"label_id 9, step 999: not in label_map"),
        (keysteps(1, end_time=None), r"segments\[1\]: expected the key 'end_time'"),
        (keysteps(1, end_time=0.1), r"segments\[1\]: a segment from 0.5 to 0.1 s"),
        (
            edit(KEYSTEPS.format("val"), lambda value: value["segments"].append(AGAIN)),
            r"keystep_segment_val.json: take uni_cooking_01_2 is in train and in val",
        ),
        (add(MAPPING, "\n3,5"), r"label_mapping.csv, line 5: no step_name"),
        (add(MAPPING, '\n3,5,"Cut'), r"label_mapping.csv, line 5: a quote is not closed"),
        (add(MAPPING, "\n7,5,Cut,Cooking"), r"label_id must run from 0 without a gap"),
    ],
}  # fmt: skip
CASES = [(name, change, message) for name in SETS for change, message in REFUSED[name]]


@pytest.mark.parametrize(("name", "change", "message"), CASES)
def test_what_cannot_be_read_is_named_in_one_line(
    root: Path, name: str, change: Change, message: str
) -> None:
    change(root / name)
    with pytest.raises(InputError, match=message) as caught:
        source(root, name)
    assert "\n" not in str(caught.value)


AS_IT_IS = every()
SHORT = "21\t99\tattach wheel\t\n90\t181\tinspect toy\t"
NO_LENGTH = "3\t3\tinspect toy\t\n21\t181\tinspect toy\t\n390\t390\tinspect toy\t"
NOTED: list[tuple[str, Change, str]] = [
    ("mstcn", AS_IT_IS, "8 takes cut to the shorter of features and labels: S1_Cheese_C1 (161 fea"),
    ("mstcn", save("S2_Cheese_C1", 8, 80), "differ by more than 2%"),
    ("egoprocel", AS_IT_IS, "15 per second: measured on 10 videos"),  # the tent's file too
    ("assembly101", write(LABELS, SHORT), "1 takes whose segments overlap or leave gaps"),
    ("assembly101", write(LABELS, NO_LENGTH), "2 segments of no length left out: assembly/nusar"),
    ("egoexo4d", AS_IT_IS, "1 segments appear twice"),
    (
        "egoexo4d",
        takes(lambda t: t[0].update(is_dropped=True)),
        f"1 takes left out, is_dropped in takes.json: {TAKES[0]}",
    ),
]


@pytest.mark.parametrize(("name", "change", "note"), NOTED)
def test_what_is_not_used_is_said(root: Path, name: str, change: Change, note: str) -> None:
    change(root / name)
    assert note in " ".join(note.line() for note in source(root, name).notes)


OTHER = FIRST.replace("_900_", "_909_")
VIDEO = "takes/{}/frame_aligned_videos/{}_214-1.mp4"
MISSING: list[tuple[str, Change, str, str]] = [
    ("mstcn", gone(f"features/{S1}.npy"), "no features", S1),
    ("mstcn", write(f"features/{S1}.npy", b""), "unreadable features", "not a .npy array"),
    (
        "mstcn",
        save(S1, 2, 8, 160),
        "unreadable features",
        "expected a 2-D array of floats, found float32 [2, 8, 160]",
    ),
    (
        "assembly101",
        every(add(COARSE, f"\n{OTHER}\t1"), write(LABELS.replace(FIRST, OTHER), SHORT)),
        f"no features of view {VIEW}",
        f"{OTHER.removesuffix('.txt').replace('assembly_', 'assembly/')}/{VIEW}",
    ),
    (
        "egoexo4d",
        edit(KEYSTEPS.format("val"), lambda v: v["segments"].append(segment("x_1", 0.0, 1.0, 0))),
        "no entry in takes.json",
        "x_1",
    ),
    ("egoexo4d", gone(VIDEO.format(TAKES[1], "aria02")), "no ego video", TAKES[1]),
    (
        "egoexo4d",
        write(VIDEO.format(TAKES[2], "aria01"), "not a video"),
        "no readable video",
        "aria01_214-1.mp4",
    ),
]


@pytest.mark.parametrize(("name", "change", "reason", "named"), MISSING)
def test_takes_that_are_not_there_may_be_left_out(
    root: Path, name: str, change: Change, reason: str, named: str
) -> None:
    change(root / name)
    with pytest.raises(InputError, match=rf"1 takes with {reason} \(.*missing=skip"):
        source(root, name)
    (take,) = source(root, name, missing="skip").skipped[reason]
    assert named in take
