"""ELAN files as people save them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pjepa.takes.annotations.elan import read_elan
from pjepa.takes.annotations.rows import Annotations
from pjepa.ui.console import InputError
from tests.worlds.elan_files import EAF


def read(folder: Path, tier: str | None = None, text: str | bytes = EAF) -> Annotations:
    path = folder / "x.eaf"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    found = Annotations()
    read_elan(path, tier, found)
    return found


def spans(found: Annotations) -> list[tuple[float, float, str | None]]:
    """Times of the document, without the video's origin of half a second."""
    return [(round(r.start - 0.5, 3), round(r.end - 0.5, 3), r.label) for r in found.rows]


TIERS = {
    "steps": [(0.0, 2.0, "cut"), (2.0, 5.0, "stir")],  # the second by its vocabulary entry alone
    "parts": [(0.0, 0.667, "reach"), (0.667, 1.333, "press"), (1.333, 2.0, "lift")],
    "finer": [(0.667, 1.0, "down"), (1.0, 1.333, "up")],
    "hands": [(0.0, 2.0, "left"), (2.0, 5.0, "right")],
    "words": [(4.0, 5.0, "three"), (2.0, 3.0, "one"), (3.0, 4.0, "two")],
}


@pytest.mark.parametrize("tier", TIERS)
def test_every_kind_of_tier_has_times(tmp_path: Path, tier: str) -> None:
    found = read(tmp_path, tier)
    assert spans(found) == TIERS[tier]
    assert not [note for note in found.notes if "not used" in note.text]


def notes(found: Annotations) -> str:
    return " ".join(note.line() for note in found.notes)


def test_the_video_is_found_behind_the_sound(tmp_path: Path) -> None:
    found = read(tmp_path, "steps")
    assert {row.video for row in found.rows} == {"x.mp4"}
    assert "steps are of the first: x.eaf (of x.mp4, not side view.mpg)" in notes(found)
    only = EAF.replace('MIME_TYPE="video/mp4"', 'MIME_TYPE="unknown"').replace("x.mp4", "x.wav")
    assert read(tmp_path, "steps", only).rows[0].video == "side view.mpg"


def test_an_empty_tier_is_a_video_without_steps(tmp_path: Path) -> None:
    found = read(tmp_path, "empty")
    assert [(row.video, row.label) for row in found.rows] == [("x.mp4", None)]
    assert "tier 'empty' is empty: no steps: x.eaf" in notes(found)


def test_the_tier_that_all_others_depend_on_is_chosen(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert spans(found) == TIERS["steps"]
    said = "'steps', not of parts, finer, hands, words, which depend on it: x.eaf"
    assert said in notes(found)


def test_the_vocabulary_lists_labels(tmp_path: Path) -> None:
    assert [*read(tmp_path, "steps").vocabulary] == ["cut", "stir", "wait"]
    assert not read(tmp_path, "parts").vocabulary
    old = re.sub(r"<CVE_VALUE[^>]*>(\w+)</CVE_VALUE>", r"\1", EAF)  # as before version 2.7
    old = old.replace("CV_ENTRY_ML", "CV_ENTRY")
    assert [*read(tmp_path, "steps", old).vocabulary] == ["cut", "stir", "wait"]


def test_annotations_without_a_time_are_counted_and_broken_links_kept_in_order(
    tmp_path: Path,
) -> None:
    lost = read(tmp_path, "hands", EAF.replace('ANNOTATION_REF="a1"', 'ANNOTATION_REF="a77"'))
    assert spans(lost) == TIERS["hands"][1:]
    assert "annotations without a time or a value not used: x.eaf (1)" in notes(lost)
    order = EAF.replace('PREVIOUS_ANNOTATION="a11"', 'PREVIOUS_ANNOTATION="a12"')
    labels = [label for _, _, label in spans(read(tmp_path, "words", order))]
    assert labels == ["three", "one", "two"]


STEPS, HANDS = 'REF="step" {}TIER_ID="steps"', 'PARENT_REF="{}" TIER_ID="hands"'
REFUSED = [
    ("stepz", "", "", r"no tier 'stepz'; tiers: steps, parts, .*, empty"),
    (None, HANDS.format("steps"), 'TIER_ID="hands"', r"several tiers \(steps, .*hands.*choose one"),
    (
        "hands", STEPS.format(""), STEPS.format('PARENT_REF="hands" '),
        "tier 'steps' depends on itself",
    ),
    ("hands", HANDS.format("steps"), HANDS.format("gone"), "'hands' depends on no tier 'gone'"),
    ("steps", '"5000"', '"5 s"', r"x.eaf, ts7: expected milliseconds, found '5 s'"),
    ("steps", 'ORIGIN="500"', 'ORIGIN="x"', r"x.eaf, TIME_ORIGIN: expected milliseconds"),
    ("steps", 'UNITS="milliseconds"', 'UNITS="frames"', "time units frames, expected millisec"),
]  # fmt: skip


@pytest.mark.parametrize(("tier", "old", "new", "message"), REFUSED)
def test_what_is_refused(
    tmp_path: Path, tier: str | None, old: str, new: str, message: str
) -> None:
    assert old in EAF
    with pytest.raises(InputError, match=message):
        read(tmp_path, tier, EAF.replace(old, new) if old else EAF)


ENCODINGS = ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "iso-8859-1"]


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_entities_are_refused_in_every_encoding(tmp_path: Path, encoding: str) -> None:
    declared = encoding.removesuffix("-sig").removesuffix("-le").removesuffix("-be")
    text = EAF.replace('encoding="UTF-8"', f'encoding="{declared}"')
    assert spans(read(tmp_path, "steps", _marked(text, encoding))) == TIERS["steps"]
    for bomb in (
        '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>',
        '<!DOCTYPE x SYSTEM "f">',
    ):
        text_ = text.replace("<ANNOTATION_DOCUMENT", f"{bomb}<ANNOTATION_DOCUMENT", 1)
        text_ = text_.replace(">cut<", ">&b;<") if "ENTITY" in bomb else text_
        with pytest.raises(InputError, match=r"x.eaf: declares a document type or XML entities"):
            read(tmp_path, "steps", _marked(text_, encoding))


def _marked(text: str, encoding: str) -> bytes:
    """Bytes of the text; UTF-16 of a named order has no mark unless it is added."""
    return (f"\ufeff{text}" if encoding[-3:] in ("-le", "-be") else text).encode(encoding)
