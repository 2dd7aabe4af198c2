"""ELAN .eaf files: the annotations of one tier, whatever its kind, as steps of the linked video."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote

from pjepa.takes.annotations.rows import AnnotationRow, Annotations
from pjepa.takes.annotations.text_files import Note, as_number, xml_root
from pjepa.ui.console import InputError
from pjepa.video.files import VIDEO_SUFFIXES

# Times of the annotations of an ELAN tier, only some of which state them.

TimeSpan = tuple[float, float]  # milliseconds
KINDS = ("ALIGNABLE_ANNOTATION", "REF_ANNOTATION")


@dataclass(frozen=True)
class ElanAnnotation:
    """One annotation; `entry` is its vocabulary entry, `span` is None if unknown."""

    ident: str
    value: str
    entry: str
    span: TimeSpan | None


class Tiers:
    """The tiers of a document by name."""

    def __init__(self, document: ET.Element, path: Path) -> None:
        self.path = path
        self.elements = {tier.get("TIER_ID", ""): tier for tier in document.iterfind("TIER")}
        self.used = [name for name in self.elements if [*self._elements(name)]]
        self._slots: dict[str, float | None] = {}  # in the order of time
        for slot in document.iterfind("TIME_ORDER/TIME_SLOT"):
            name, value = slot.get("TIME_SLOT_ID", ""), slot.get("TIME_VALUE")
            where = f"{path}, {name}"
            self._slots[name] = None if value is None else as_number(value, where, "milliseconds")
        self._order = {name: place for place, name in enumerate(self._slots)}

    def parent(self, name: str) -> str | None:
        return self.elements[name].get("PARENT_REF")

    def annotations(self, name: str) -> list[ElanAnnotation]:
        """Return the annotations of a tier; those it depends on are timed first."""
        spans = self._spans(name, ())
        return [
            ElanAnnotation(ident, (element.findtext("ANNOTATION_VALUE") or "").strip(),
                 element.get("CVE_REF", ""), spans.get(ident))
            for element in self._elements(name)
            if (ident := element.get("ANNOTATION_ID", ""))
        ]  # fmt: skip

    def _elements(self, name: str) -> Iterator[ET.Element]:
        for holder in self.elements[name].iterfind("ANNOTATION"):
            yield from (element for element in holder if element.tag in KINDS)

    def _spans(self, name: str, below: tuple[str, ...]) -> dict[str, TimeSpan]:
        """Return times of the annotations of a tier, and of those it depends on."""
        spans: dict[str, TimeSpan] = {}
        if (above := self.parent(name)) is not None:
            if above in (*below, name) or above not in self.elements:
                what = "itself" if above in self.elements else f"no tier {above!r}"
                raise InputError(f"{self.path}: tier {name!r} depends on {what}")
            spans = self._spans(above, (*below, name))
        self._fill_slots(name)
        children: dict[str, list[ET.Element]] = defaultdict(list)  # share their parent's time
        for element in self._elements(name):
            start, end = (self._slots.get(slot) for slot in _ends(element))
            if "ANNOTATION_REF" in element.attrib:
                children[element.attrib["ANNOTATION_REF"]].append(element)
            elif start is not None and end is not None:
                spans[element.get("ANNOTATION_ID", "")] = (start, end)
        for parent, elements in children.items():
            if parent in spans:
                start, end = spans[parent]
                step = (end - start) / len(elements)
                for place, element in enumerate(_in_order(elements)):
                    span = start + place * step, start + (place + 1) * step
                    spans[element.get("ANNOTATION_ID", "")] = span
        return spans

    def _fill_slots(self, name: str) -> None:
        """Space the tier's slots without a time evenly between their neighbours with one."""
        mine = {slot for element in self._elements(name) for slot in _ends(element)}
        order = sorted(mine & set(self._order), key=self._order.__getitem__)
        known = [place for place, slot in enumerate(order) if self._slots[slot] is not None]
        for left, right in pairwise(known):
            start, end = self._slots[order[left]], self._slots[order[right]]
            assert start is not None
            assert end is not None
            for place in range(left + 1, right):
                share = (place - left) / (right - left)
                self._slots[order[place]] = start + share * (end - start)


def vocabulary_of(document: ET.Element, tier: ET.Element) -> dict[str, str]:
    """Return the entries of the tier's controlled vocabulary by id, in the order of the file."""
    kinds = {kind.get("LINGUISTIC_TYPE_ID"): kind for kind in document.iterfind("LINGUISTIC_TYPE")}
    kind = kinds.get(tier.get("LINGUISTIC_TYPE_REF"))
    name = None if kind is None else kind.get("CONTROLLED_VOCABULARY_REF")
    entries: dict[str, str] = {}
    for words in document.iterfind("CONTROLLED_VOCABULARY") if name else ():
        for place, entry in enumerate(words if words.get("CV_ID") == name else ()):
            text = entry.findtext("CVE_VALUE") if entry.tag == "CV_ENTRY_ML" else entry.text
            if entry.tag.startswith("CV_ENTRY") and text and text.strip():
                entries[entry.get("CVE_ID") or f"entry {place}"] = text.strip()
    return entries


def _ends(part: ET.Element) -> list[str]:
    return [part.get(f"TIME_SLOT_REF{k}", "") for k in (1, 2)]


def _in_order(parts: list[ET.Element]) -> list[ET.Element]:
    """Return siblings in the order of `PREVIOUS_ANNOTATION`; as listed if the links are broken."""
    after = {part.get("PREVIOUS_ANNOTATION"): part for part in parts}
    ordered: list[ET.Element] = []
    ident: str | None = None
    while ident in after and len(ordered) < len(parts):
        ordered.append(after[ident])
        ident = ordered[-1].get("ANNOTATION_ID")
    return ordered if len(ordered) == len(parts) else parts


def read_elan(path: Path, tier: str | None, annotations: Annotations) -> None:
    """Add the annotations of one tier; if several have some, `tier` must name one."""
    document = _document(path)
    video, origin_s = _media(document, path, annotations)
    tiers = Tiers(document, path)
    name = _chosen(tiers, tier, annotations)
    if name is None:
        annotations.rows.append(AnnotationRow(str(path), video))
        return
    words = vocabulary_of(document, tiers.elements[name])
    annotations.vocabulary |= dict.fromkeys(words.values())
    rows: list[AnnotationRow] = []
    timed = tiers.annotations(name)
    for annotation in timed:
        label = annotation.value or words.get(annotation.entry, "")
        if label and annotation.span is not None:
            start, end = (value / 1000 + origin_s for value in annotation.span)
            rows.append(AnnotationRow(f"{path}, {annotation.ident}", video, start, end, label))
    annotations.rows += rows or [AnnotationRow(str(path), video)]
    if unused := len(timed) - len(rows):
        about = (f"{path.name} ({unused})",)
        annotations.notes.append(Note("annotations without a time or a value not used", about))


def _document(path: Path) -> ET.Element:
    document = xml_root(path, "ELAN files")
    if document.tag != "ANNOTATION_DOCUMENT":
        raise InputError(f"{path}: expected ANNOTATION_DOCUMENT, found {document.tag}")
    header = document.find("HEADER")
    units = "milliseconds" if header is None else header.get("TIME_UNITS", "milliseconds")
    if units != "milliseconds":
        raise InputError(f"{path}: time units {units}, expected milliseconds")
    return document


def _media(document: ET.Element, path: Path, annotations: Annotations) -> tuple[str, float]:
    """Return the video's name (the file's own where none is linked) and its time origin in seconds.

    ELAN links sound files too, often before the videos: the first video counts.
    """
    linked = document.findall("HEADER/MEDIA_DESCRIPTOR")
    if not linked:
        return path.stem, 0.0
    media = next((entry for entry in linked if _is_video(entry)), linked[0])
    name = _file_name(media) or path.stem
    others = [_file_name(entry) for entry in linked if entry is not media and _is_video(entry)]
    if others:
        about = f"{path.name} (of {name}, not {', '.join(others)})"
        annotations.notes.append(
            Note("several videos are linked, steps are of the first", (about,))
        )
    origin = media.get("TIME_ORIGIN") or "0"
    return name, as_number(origin, f"{path}, TIME_ORIGIN", "milliseconds") / 1000


def _is_video(media: ET.Element) -> bool:
    kind = media.get("MIME_TYPE", "")
    return kind.startswith("video") or _file_name(media).lower().endswith(VIDEO_SUFFIXES)


def _file_name(media: ET.Element) -> str:
    url = media.get("RELATIVE_MEDIA_URL") or media.get("MEDIA_URL") or ""
    return unquote(url).replace("\\", "/").rsplit("/", 1)[-1]


def _chosen(tiers: Tiers, requested: str | None, annotations: Annotations) -> str | None:
    """Return the tier to read: the requested one, the only one in use, or the others' parent."""
    path, used = tiers.path, tiers.used
    if requested is not None:
        if requested not in tiers.elements:
            raise InputError(f"{path}: no tier {requested!r}; tiers: {', '.join(tiers.elements)}")
        if requested not in used:
            annotations.notes.append(Note(f"tier {requested!r} is empty: no steps", (path.name,)))
        return requested
    tops = [name for name in used if tiers.parent(name) not in used]
    if len(tops) > 1:
        names = ", ".join(used)
        raise InputError(f"{path}: several tiers ({names}); choose one with data.folder.tier")
    if len(used) > 1:
        rest = ", ".join(name for name in used if name != tops[0])
        text = f"steps are of tier {tops[0]!r}, not of {rest}, which depend on it"
        annotations.notes.append(Note(text, (path.name,)))
    return tops[0] if tops else None
