"""Folders that other tools read unchanged: features, labels per frame, splits, class list.

| layout      | features                                | read by                                  |
|-------------|-----------------------------------------|------------------------------------------|
| `mstcn`     | `features/<name>.npy` [D, T]            | MS-TCN, ASFormer, LTContext (Breakfast)  |
| `fact`      | `features/<name>.npy` [T, D]            | FACT (EgoProceL and custom data sets)    |
| `ltcontext` | `TSM_features/<video>/<view>/*` [D, T]  | LTContext (Assembly101, numpy mode)      |
| `npy`       | `features/<name>.npy` [T, D]            | any script: times and labels beside them |

A frame is a token: all layouts are at the stream's rate, with one label for each row of features.
Every text file ends with a newline, which the tools need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import numpy as np
import pandas as pd
import yaml

from pjepa.core.runs import runs
from pjepa.core.tables import Classes
from pjepa.core.text import sheet_cell
from pjepa.storage.writing import atomic_folder, write_csv, write_json
from pjepa.streams.provenance import StreamInfo
from pjepa.streams.stream import StreamReader
from pjepa.ui.console import InputError, track

# What an export holds of every take: features, times, labels, split and a name for files.

Unlabelled = Literal["drop", "class"]
NO_LABEL = "unlabelled"  # the class that `class` adds
LONGEST_NAME = 200


@dataclass(frozen=True)
class ExportedTake:
    """One take as other tools see it: row i of the features is frame i."""

    name: str  # a file name without suffix; letters, digits and _-~% only
    take_id: str
    split: str
    view: str
    task: str
    features: np.ndarray  # [T, D] float32
    times: np.ndarray  # [T] seconds
    labels: np.ndarray | None  # [T] class ids, none of them -1; None: nothing is known
    dropped: int  # tokens without a label that were left out


def file_stem(take_id: str) -> str:
    """Return the take's name in file names and split lists.

    Percent-quoted, dots too: MS-TCN and its kin cut a name at the first dot.
    """
    name = quote(take_id, safe="").replace(".", "%2E")
    if not name or len(name) > LONGEST_NAME:
        raise InputError(f"take id {take_id[:40]!r}: expected 1 to {LONGEST_NAME} safe characters")
    return name


def class_names(classes: Classes, unlabelled: Unlabelled, spaces: bool) -> list[str]:
    """Return names by id as a layout can hold them: one line each, and one word unless `spaces`."""
    names = [*classes.names, NO_LABEL] if unlabelled == "class" else list(classes.names)
    written = [(" " if spaces else "_").join(name.split()) for name in names]
    for ident, name in enumerate(written):
        if not name or name in written[:ident]:
            raise InputError(
                f"class {ident} {names[ident]!r} has the same name as another class once written "
                f"as {name!r}; rename it in the data"
            )
    return written


def exported_takes(
    stream: StreamReader,
    labels: Mapping[str, np.ndarray],
    takes: pd.DataFrame,
    classes: Classes,
    unlabelled: Unlabelled,
) -> Iterator[ExportedTake]:
    """Yield every take of a representation, one in memory at a time."""
    rows = {row["take_id"]: row for row in takes.to_dict("records")}
    missing = [take_id for take_id in stream.takes if take_id not in rows]
    if missing:
        raise InputError(f"{stream.path}: take {missing[0]!r} is not in takes.parquet")
    read = stream.read_many()
    for take in track(read, "export", total=len(stream.takes), unit="take"):
        row = rows[take.take_id]
        of_take = labels.get(take.take_id, np.full(len(take.times), -1))
        if len(of_take) != len(take.times):
            raise InputError(
                f"take {take.take_id}: {len(of_take)} labels for {len(take.times)} tokens of "
                f"{stream.path}; run `dvc repro`"
            )
        labelled = bool((of_take >= 0).any())
        drop = (of_take < 0) & (labelled and unlabelled == "drop")
        ids = np.where(of_take < 0, len(classes.names), of_take)
        yield ExportedTake(
            name=file_stem(take.take_id),
            take_id=take.take_id,
            split=row["split"],
            view=row["view"],
            task=row["task"],
            features=take.features[~drop],
            times=take.times[~drop],
            labels=ids[~drop] if labelled else None,
            dropped=int(drop.sum()),
        )


LayoutName = Literal["mstcn", "fact", "ltcontext", "npy"]
MARK = "export.json"  # marks a folder as an export, so that the next one may replace it
COARSE = "coarse-annotations"
STREAM_COLUMNS = ("", "video_id", "view", "action_type", "video_start_frame", "video_end_frame")
ACTION_COLUMNS = ("action_id", "verb_id", "noun_id", "action_cls", "verb_cls", "noun_cls")
LIST_COLUMNS = ("name", "take_id", "split", "tokens", "left_out", "first_s", "last_s")


@dataclass(frozen=True)
class Exported:
    """The takes that were written, without their features, and what the lists say about them."""

    takes: list[ExportedTake]
    names: list[str]  # of classes
    background: int | None

    def split(self, split: str) -> list[ExportedTake]:
        """Return the labelled takes of a split: others cannot be trained or scored on."""
        return [take for take in self.takes if take.split == split and take.labels is not None]

    @property
    def reported(self) -> str:
        """Return the split that tools score: `test` where it has labels, else `val`."""
        return "test" if self.split("test") else "val"

    @property
    def left_out(self) -> int:
        """Return the number of unlabelled tokens that no tool could use."""
        return sum(take.dropped for take in self.takes)


def write_export(
    out: Path,
    layout: LayoutName,
    takes: Iterable[ExportedTake],
    info: StreamInfo,
    classes: Classes,
    unlabelled: Unlabelled,
) -> Exported:
    """Write the folder whole; only an earlier export is replaced."""
    if out.exists() and not (out / MARK).is_file() and (out.is_file() or any(out.iterdir())):
        raise InputError(f"{out}: exists and is not an export; choose another --out")
    names = class_names(classes, unlabelled, spaces=layout in ("fact", "npy"))
    write_take, write_lists = LAYOUTS[layout]
    done = Exported([], names, classes.background)
    with atomic_folder(out) as folder:
        for take in takes:
            write_take(folder, take, names)
            done.takes.append(replace(take, features=take.features[:0].copy()))
        write_lists(folder, done)
        write_csv(folder / "takes.csv", LIST_COLUMNS, map(_listed, done.takes))
        how = {"layout": layout, "unlabelled": unlabelled, "left_out": done.left_out}
        write_json(folder / MARK, how | info.model_dump())
    return done


def _listed(take: ExportedTake) -> tuple[object, ...]:
    """Return a take's line of takes.csv."""
    names = (sheet_cell(take.name), sheet_cell(take.take_id))
    seconds = (f"{take.times[0]:.3f}", f"{take.times[-1]:.3f}") if len(take.times) else ("", "")
    return (*names, take.split, len(take.times), take.dropped, *seconds)


def _save(path: Path, array: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, np.ascontiguousarray(array))


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


# MS-TCN, ASFormer, LTContext on Breakfast; FACT.


def _framewise_take(
    folder: Path, take: ExportedTake, names: list[str], time_first: bool = False
) -> None:
    features = take.features if time_first else take.features.T
    _save(folder / "features" / f"{take.name}.npy", features)
    if take.labels is not None:
        lines = (names[label] for label in take.labels.tolist())
        _write_lines(folder / "groundTruth" / f"{take.name}.txt", lines)


def _mstcn_lists(folder: Path, done: Exported) -> None:
    lines = (f"{ident} {name}" for ident, name in enumerate(done.names))
    _write_lines(folder / "mapping.txt", lines)
    splits = {"train": "train", "test": done.reported}
    if done.reported == "test" and done.split("val"):
        splits["val"] = "val"
    for name, split in splits.items():
        bundle = (f"{take.name}.txt" for take in done.split(split))
        _write_lines(folder / "splits" / f"{name}.split1.bundle", bundle)


def _fact_lists(folder: Path, done: Exported) -> None:
    """Write `split1.*` (EgoProceL loader), `splits/` and fact.yaml (custom data sets)."""
    _mstcn_lists(folder, done)
    for name, split in {"train": "train", "test": done.reported}.items():
        _write_lines(folder / f"split1.{name}", (take.name for take in done.split(split)))
    labels = [take.labels for take in done.split("train") if take.labels is not None]
    counts = [len(runs(each)[0]) for each in labels] or [0]
    settings = {
        "feature_path": "features",
        "groundTruth_path": "groundTruth",
        "map_fname": "mapping.txt",
        "split_path": "splits",
        "feature_transpose": False,
        "bg_class": [] if done.background is None else [done.background],
        "average_transcript_len": round(float(np.mean(counts)), 2),
        "ntoken": int(1.5 * max(counts)),
        "sr": 1,
    }
    (folder / "fact.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))


# LTContext on Assembly101.


def _ltcontext_take(folder: Path, take: ExportedTake, names: list[str]) -> None:
    """Write features [D, T] and the label file of one stream, which starts at frame 0.

    LTContext calls a stream by sequence, view and action type. A take is a sequence of its own,
    so the assembly and the disassembly of one recording keep features of their own.
    """
    _save(folder / "TSM_features" / take.name / _view(take) / "features.npy", take.features.T)
    if take.labels is None:
        return
    starts, lengths = runs(take.labels)
    lines = (
        f"{first}\t{first + count}\t{names[take.labels[first]]}\t"
        for first, count in zip(starts.tolist(), lengths.tolist(), strict=True)
    )
    _write_lines(folder / COARSE / "coarse_labels" / f"{_kind(take)}_{take.name}.txt", lines)


def _view(take: ExportedTake) -> str:
    return "".join(c if c.isalnum() or c in "_-" else "_" for c in take.view) or "view"


def _kind(take: ExportedTake) -> str:
    return "disassembly" if take.task == "disassembly" else "assembly"


def _ltcontext_lists(folder: Path, done: Exported) -> None:
    for name, split in {"train": "train", "val": done.reported}.items():
        takes = done.split(split)
        rows = [
            (number, take.name, _view(take), _kind(take), 1, len(take.times))
            for number, take in enumerate(takes)
        ]
        write_csv(folder / f"{name}.csv", STREAM_COLUMNS, rows)
        for kind in ("assembly", "disassembly"):
            lines = (f"{kind}_{take.name}.txt\t0\t0\t0" for take in takes if _kind(take) == kind)
            _write_lines(folder / COARSE / "coarse_splits" / f"{name}_coarse_{kind}.txt", lines)
    actions = ((ident, ident, 0, name, name, "none") for ident, name in enumerate(done.names))
    write_csv(folder / COARSE / "actions.csv", ACTION_COLUMNS, actions)


# Plain arrays.


def _npy_take(folder: Path, take: ExportedTake, names: list[str]) -> None:
    _save(folder / "features" / f"{take.name}.npy", take.features)  # [T, D]
    _save(folder / "times" / f"{take.name}.npy", take.times)
    if take.labels is not None:
        _save(folder / "labels" / f"{take.name}.npy", take.labels.astype(np.int32))


def _npy_lists(folder: Path, done: Exported) -> None:
    write_json(folder / "classes.json", {"names": done.names, "background": done.background})


WriteTake = Callable[[Path, ExportedTake, list[str]], None]
WriteLists = Callable[[Path, Exported], None]
LAYOUTS: dict[LayoutName, tuple[WriteTake, WriteLists]] = {
    "mstcn": (_framewise_take, _mstcn_lists),
    "fact": (partial(_framewise_take, time_first=True), _fact_lists),
    "ltcontext": (_ltcontext_take, _ltcontext_lists),
    "npy": (_npy_take, _npy_lists),
}
