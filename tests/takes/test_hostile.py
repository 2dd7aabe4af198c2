"""Public data sets as they come from other people: newlines, quotes, holes, twins, kinds, escapes.

Every loader reads what can be read and names file and place of what cannot; none ends in a
traceback.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pjepa.takes.config import DataConfig
from pjepa.takes.source import Source, checked_source
from pjepa.takes.sources.registry import open_source
from pjepa.ui.console import InputError
from tests.takes.assembly import SEQUENCES, VIEW, write_annotations, write_lmdb
from tests.takes.bundles import write_bundle, write_egoprocel
from tests.takes.test_egoexo4d import TAKES, Download

Change = Callable[[Path], Any]
MARK = b"\xef\xbb\xbf"


def source(root: Path, name: str, **values: Any) -> Source:
    return checked_source(open_source(DataConfig.model_validate({"source": name, **values}), root))


def write(name: str, content: str | bytes) -> Change:
    data = content if isinstance(content, bytes) else content.encode()
    return lambda base: (base / name).write_bytes(data)


def add(name: str, more: str) -> Change:
    return lambda base: (base / name).write_text((base / name).read_text() + more)


def foreign_newlines(base: Path) -> None:
    """Every text file with a mark, CRLF and empty lines at its end."""
    for path in base.rglob("*"):
        if path.suffix in (".txt", ".csv", ".bundle", ".json", ".train", ".test"):
            path.write_bytes(MARK + path.read_bytes().replace(b"\n", b"\r\n") + b"\r\n\r\n")


# Frame labels: MS-TCN and EgoProceL


def turn(base: Path) -> None:
    for path in base.glob("features/*.npy"):
        np.save(path, np.load(path).T)


BUNDLE: dict[str, tuple[Change, str]] = {
    "no class": (
        write("mapping.txt", ""),
        r"mapping.txt: ids of lines .* must run from 0 without a gap, found none",
    ),
    "no array": (write("features/S1_Cheese_C1.npy", b""), r"S1_Cheese_C1.npy: not a .npy array"),
    "no row": (
        lambda base: np.save(base / "features/S1_Cheese_C1.npy", np.zeros((8, 0), np.float32)),
        r"1 takes with no features \(S1_Cheese_C1\)",
    ),
    "a vector": (
        lambda base: np.save(base / "features/S1_Cheese_C1.npy", np.zeros(5, np.float32)),
        r"expected a 2-D array of floats, found float32 \[5\]",
    ),
    "another encoding": (
        write("groundTruth/S1_Cheese_C1.txt", "café".encode("latin-1")),
        r"S1_Cheese_C1.txt: not UTF-8 text \(byte 3\)",
    ),
    "turned": (turn, r"time stands first; set data.mstcn.time_first"),
    "absolute": (write("splits/train.split1.bundle", "/etc/passwd"), r"no features \(/etc/passw"),
}


@pytest.mark.parametrize("case", BUNDLE)
def test_bundles_that_are_refused(tmp_path: Path, case: str) -> None:
    write_bundle(tmp_path / "gtea")
    change, message = BUNDLE[case]
    change(tmp_path / "gtea")
    with pytest.raises(InputError, match=message):
        source(tmp_path, "mstcn", mstcn={"dataset": "gtea"})


def test_bundles_that_are_read(tmp_path: Path) -> None:
    write_bundle(tmp_path / "gtea")
    plain = source(tmp_path, "mstcn", mstcn={"dataset": "gtea"})
    foreign_newlines(tmp_path / "gtea")
    mapping = tmp_path / "gtea/mapping.txt"
    mapping.write_bytes(mapping.read_bytes().replace(b" ", b"\t"))
    assert source(tmp_path, "mstcn", mstcn={"dataset": "gtea"}) == plain


def test_egoprocel_from_elsewhere(tmp_path: Path) -> None:
    base = tmp_path / "egoprocel"
    write_egoprocel(base, annotations_fps=15.0)
    plain = source(tmp_path, "egoprocel")
    foreign_newlines(base)
    assert source(tmp_path, "egoprocel") == plain
    turn(base)
    with pytest.raises(InputError, match=r"time stands last; FACT's"):
        source(tmp_path, "egoprocel")


# Assembly101

ACTIONS = "coarse-annotations/actions.csv"
TRAIN = "coarse-annotations/coarse_splits/train_coarse_assembly.txt"
FIRST = f"assembly_{SEQUENCES[0]}.txt"
COARSE: dict[str, tuple[Change, str]] = {
    "a short row": (add(ACTIONS, "\n4"), r"actions.csv, line 6: action 4 '': expected each once"),
    "an id twice": (add(ACTIONS, "\n3,0,0,other,v,n"), r"line 6: action 3 'other'"),
    "a name twice": (add(ACTIONS, "\n4,0,0,inspect toy,v,n"), r"line 6: action 4 'inspect toy'"),
    "a take twice": (add(TRAIN, f"\n{FIRST}\t1"), r"train_coarse_assembly.txt, line 2: .* twice"),
    "two splits": (add(TRAIN, f"\nassembly_{SEQUENCES[1]}.txt\t1"), r"is in train and in val"),
    "an escape": (write(TRAIN, "assembly_../../etc/passwd.txt\t1"), r"expected a path inside"),
    "no action": (write(ACTIONS, ""), r"actions.csv, line 1: expected the columns action_id"),
    "no store": (write(f"{VIEW}/data.mdb", b"x"), r"not an LMDB environment"),
}


@pytest.mark.parametrize("case", COARSE)
def test_annotations_that_are_refused(tmp_path: Path, case: str) -> None:
    base = tmp_path / "assembly101"
    write_annotations(base)
    write_lmdb(base / VIEW)
    change, message = COARSE[case]
    change(base)
    with pytest.raises(InputError, match=message):
        source(tmp_path, "assembly101")


def test_annotations_with_other_newlines(tmp_path: Path) -> None:
    write_annotations(tmp_path / "assembly101")
    write_lmdb(tmp_path / "assembly101" / VIEW)
    plain = source(tmp_path, "assembly101")
    foreign_newlines(tmp_path / "assembly101/coarse-annotations")
    assert source(tmp_path, "assembly101") == plain


# Ego-Exo4D


@pytest.fixture(scope="module")
def exo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Download(tmp_path_factory.mktemp("exo")).folder


MAPPING = "annotations/keystep_benchmark/label_mapping.csv"
KEYSTEPS = "annotations/keystep_benchmark/keystep_segment_train.json"


def edit(name: str, change: Callable[[Any], Any]) -> Change:
    def apply(base: Path) -> None:
        value = json.loads((base / name).read_text())
        change(value)
        (base / name).write_text(json.dumps(value))

    return apply


def twin(takes: list[dict[str, Any]], **values: str) -> None:
    takes.append({**takes[0], **values})


def segment(**values: object) -> Change:
    return edit(KEYSTEPS, lambda value: value["segments"][0].update(values))


KEYSTEP: dict[str, tuple[Change, str]] = {
    "no list": (lambda base: (base / "takes.json").unlink(), r"takes.json: no such file; fetch it"),
    "another encoding": (write("takes.json", b'["\xe9"]'), r"takes.json: not UTF-8 text"),
    "no name": (
        edit("takes.json", lambda takes: takes[0].pop("take_name")),
        r"takes.json, \[0\]: expected the key 'take_name'",
    ),
    "a take twice": (edit("takes.json", twin), r"takes.json, \[3\]: take_uid .* appears twi"),
    "a name twice": (
        edit("takes.json", lambda takes: takes[1].update(take_name=TAKES[0])),
        r"take_name 'uni_cooking_01_2' appears twice",
    ),
    "an escape": (
        edit("takes.json", lambda takes: takes[0].update(root_dir="../../etc")),
        r"expected a path inside the data set's folder",
    ),
    "cameras in a list": (
        edit("takes.json", lambda takes: takes[0].update(frame_aligned_videos=[1])),
        r"frame_aligned_videos: expected cameras by name",
    ),
    "words for seconds": (segment(start_time="soon"), r"segments\[0\]: start_time: expected sec"),
    "words for labels": (segment(label_id="x"), r"segments\[0\]: label_id: expected a whole"),
    "no step": (add(MAPPING, "\n3,5"), r"label_mapping.csv, line 5: no step_name"),
    "an open quote": (add(MAPPING, '\n3,5,"Cut'), r"label_mapping.csv, line 5: a quote is not clo"),
}


@pytest.mark.parametrize("case", KEYSTEP)
def test_keysteps_that_are_refused(exo: Path, case: str) -> None:
    kept = {name: (exo / name).read_bytes() for name in ("takes.json", MAPPING, KEYSTEPS)}
    change, message = KEYSTEP[case]
    change(exo)
    try:
        with pytest.raises(InputError, match=message):
            source(exo.parent, "egoexo4d")
    finally:
        for name, content in kept.items():
            (exo / name).write_bytes(content)


def test_keysteps_with_other_newlines(exo: Path) -> None:
    plain = source(exo.parent, "egoexo4d")
    kept = {path: path.read_bytes() for path in exo.rglob("*.[jc]s*")}
    foreign_newlines(exo)
    assert source(exo.parent, "egoexo4d") == plain
    for path, content in kept.items():
        path.write_bytes(content)
