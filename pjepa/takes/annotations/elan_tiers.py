"""Times of the annotations of an ELAN tier, only some of which state them.

Annotations of an independent tier have two aligned time slots. On a time subdivision, slots between
two aligned ones have no value: they divide the time evenly, as ELAN draws them. Annotations of
symbolic tiers have no slots: one takes the time of the annotation it refers to, several share it.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from pjepa.ui.errors import InputError

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
        self.used = [name for name in self.elements if [*self._annotations(name)]]
        self._slots = {  # in the order of time
            slot.get("TIME_SLOT_ID", ""): self._milliseconds(slot)
            for slot in document.iterfind("TIME_ORDER/TIME_SLOT")
        }
        self._order = {name: place for place, name in enumerate(self._slots)}

    def parent(self, name: str) -> str | None:
        return self.elements[name].get("PARENT_REF")

    def parts(self, name: str) -> list[ElanAnnotation]:
        """Return the annotations of a tier; those it depends on are timed first."""
        spans: dict[str, TimeSpan] = {}
        for tier in self._lineage(name):
            self._fill_slots(tier)
            spans |= self._aligned(tier)
            spans |= self._shared(tier, spans)
        return [
            ElanAnnotation(ident, (part.findtext("ANNOTATION_VALUE") or "").strip(),
                 part.get("CVE_REF", ""), spans.get(ident))
            for part in self._annotations(name)
            if (ident := part.get("ANNOTATION_ID", ""))
        ]  # fmt: skip

    def _milliseconds(self, slot: ET.Element) -> float | None:
        value = slot.get("TIME_VALUE")
        try:
            return None if value is None else float(value)
        except ValueError:
            where = f"{self.path}, {slot.get('TIME_SLOT_ID')}"
            raise InputError(f"{where}: expected milliseconds, found {value!r}") from None

    def _annotations(self, name: str) -> Iterator[ET.Element]:
        for holder in self.elements[name].iterfind("ANNOTATION"):
            yield from (part for part in holder if part.tag in KINDS)

    def _lineage(self, name: str) -> list[str]:
        """Return the tier and those it depends on, the topmost first."""
        found = [name]
        while (above := self.parent(found[-1])) is not None:
            if above in found or above not in self.elements:
                what = "depends on itself" if above in found else f"depends on no tier {above!r}"
                raise InputError(f"{self.path}: tier {found[-1]!r} {what}")
            found.append(above)
        return found[::-1]

    def _fill_slots(self, name: str) -> None:
        """Space the tier's slots without a time evenly between their neighbours with one."""
        mine = {slot for part in self._annotations(name) for slot in _ends(part)}
        order = sorted(mine & set(self._order), key=self._order.__getitem__)
        known = [place for place, slot in enumerate(order) if self._slots[slot] is not None]
        for left, right in pairwise(known):
            start, end = self._slots[order[left]], self._slots[order[right]]
            assert start is not None
            assert end is not None
            for place in range(left + 1, right):
                share = (place - left) / (right - left)
                self._slots[order[place]] = start + share * (end - start)

    def _aligned(self, name: str) -> dict[str, TimeSpan]:
        found = {}
        for part in self._annotations(name):
            start, end = (self._slots.get(slot) for slot in _ends(part))
            if start is not None and end is not None:
                found[part.get("ANNOTATION_ID", "")] = (start, end)
        return found

    def _shared(self, name: str, spans: dict[str, TimeSpan]) -> dict[str, TimeSpan]:
        """Return times of annotations that refer to others and share their time."""
        children: dict[str, list[ET.Element]] = defaultdict(list)
        for part in self._annotations(name):
            if "ANNOTATION_REF" in part.attrib:
                children[part.attrib["ANNOTATION_REF"]].append(part)
        found = {}
        for above, parts in children.items():
            if above not in spans:
                continue
            start, end = spans[above]
            step = (end - start) / len(parts)
            for place, part in enumerate(_in_order(parts)):
                ident = part.get("ANNOTATION_ID", "")
                found[ident] = (start + place * step, start + (place + 1) * step)
        return found


class Vocabulary:
    """The controlled vocabulary of a tier: its entries by id, in the order of the file."""

    def __init__(self, document: ET.Element, tier: ET.Element) -> None:
        self.entries: dict[str, str] = {}
        kind = tier.get("LINGUISTIC_TYPE_REF")
        name = next(
            (
                found.get("CONTROLLED_VOCABULARY_REF")
                for found in document.iterfind("LINGUISTIC_TYPE")
                if found.get("LINGUISTIC_TYPE_ID") == kind
            ),
            None,
        )
        for words in document.iterfind("CONTROLLED_VOCABULARY") if name else ():
            if words.get("CV_ID") == name:
                self._add(words)

    def _add(self, words: ET.Element) -> None:
        for place, entry in enumerate(words):
            text = entry.findtext("CVE_VALUE") if entry.tag == "CV_ENTRY_ML" else entry.text
            if entry.tag.startswith("CV_ENTRY") and text and text.strip():
                self.entries[entry.get("CVE_ID") or f"entry {place}"] = text.strip()


def _ends(part: ET.Element) -> list[str]:
    return [part.get(f"TIME_SLOT_REF{k}", "") for k in (1, 2)]


def _in_order(parts: list[ET.Element]) -> list[ET.Element]:
    """Return siblings in the order of `PREVIOUS_ANNOTATION`; as listed if the links are broken."""
    after = {part.get("PREVIOUS_ANNOTATION"): part for part in parts}
    found: list[ET.Element] = []
    ident: str | None = None
    while ident in after and len(found) < len(parts):
        found.append(after[ident])
        ident = found[-1].get("ANNOTATION_ID")
    return found if len(found) == len(parts) else parts
