"""ELAN files as people save them."""

from __future__ import annotations

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


def test_the_video_is_found_behind_the_sound(tmp_path: Path) -> None:
    found = read(tmp_path, "steps")
    assert {row.video for row in found.rows} == {"x.mp4"}
    assert "steps are of the first: x.eaf (of x.mp4, not side view.mpg)" in found.notes[0].line()
    only = EAF.replace('MIME_TYPE="video/mp4"', 'MIME_TYPE="unknown"').replace("x.mp4", "x.wav")
    assert read(tmp_path, "steps", only).rows[0].video == "side view.mpg"


def test_an_empty_tier_is_a_video_without_steps(tmp_path: Path) -> None:
    found = read(tmp_path, "empty")
    assert [(row.video, row.label) for row in found.rows] == [("x.mp4", None)]
    assert "tier 'empty' is empty: no steps: x.eaf" in found.notes[-1].line()
    with pytest.raises(InputError, match=r"no tier 'stepz'; tiers: steps, parts, .*, empty"):
        read(tmp_path, "stepz")


def test_the_tier_that_all_others_depend_on_is_chosen(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert spans(found) == TIERS["steps"]
    assert (
        "'steps', not of parts, finer, hands, words, which depend on it: x.eaf"
        in found.notes[-1].line()
    )


def test_the_vocabulary_lists_labels(tmp_path: Path) -> None:
    assert [*read(tmp_path, "steps").vocabulary] == ["cut", "stir", "wait"]
    assert not read(tmp_path, "parts").vocabulary
    old = EAF.replace("CV_ENTRY_ML", "CV_ENTRY")
    for name in ("cut", "stir", "wait"):  # as versions before 2.7 wrote them
        start = old.index("<CVE_VALUE")
        end = old.index("</CVE_VALUE>") + len("</CVE_VALUE>")
        old = old[:start] + name + old[end:]
    assert [*read(tmp_path, "steps", old).vocabulary] == ["cut", "stir", "wait"]


def test_damaged_references_are_said(tmp_path: Path) -> None:
    lost = read(tmp_path, "hands", EAF.replace('ANNOTATION_REF="a1"', 'ANNOTATION_REF="a77"'))
    assert spans(lost) == TIERS["hands"][1:]
    assert "annotations without a time or a value not used: " in lost.notes[-1].line()
    circle = EAF.replace(
        'REF="step" TIER_ID="steps"', 'REF="step" PARENT_REF="hands" TIER_ID="steps"'
    )
    with pytest.raises(InputError, match="tier 'steps' depends on itself"):
        read(tmp_path, "hands", circle)
    with pytest.raises(InputError, match="tier 'hands' depends on no tier 'gone'"):
        read(tmp_path, "hands", EAF.replace('PARENT_REF="steps" TIER_ID="hands"',
                                            'PARENT_REF="gone" TIER_ID="hands"'))  # fmt: skip
    with pytest.raises(InputError, match=r"x.eaf, ts7: expected milliseconds, found '5 s'"):
        read(tmp_path, "steps", EAF.replace('"5000"', '"5 s"'))
    order = EAF.replace('PREVIOUS_ANNOTATION="a11"', 'PREVIOUS_ANNOTATION="a12"')
    assert [label for _, _, label in spans(read(tmp_path, "words", order))] == [
        "three",
        "one",
        "two",
    ]


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
