"""ELAN .eaf files: the time-aligned annotations of one tier."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from urllib.parse import unquote

from pjepa.errors import InputError
from pjepa.takes.annotations import Annotations, Marked


def read_elan(path: Path, tier: str | None, found: Annotations) -> None:
    """Adds the annotations of one tier; of several with annotations, `tier` has to name one."""
    document = _parsed(path)
    video, origin_s = _media(document, path, found)
    slots = {
        slot.get("TIME_SLOT_ID"): slot.get("TIME_VALUE")
        for slot in document.iterfind("TIME_ORDER/TIME_SLOT")
    }
    chosen = _tier(document, tier, path)
    if chosen is None:
        found.rows.append(Marked(str(path), video))
        return
    lost = 0
    for part in chosen.iterfind("ANNOTATION/ALIGNABLE_ANNOTATION"):
        ends = [slots.get(part.get(f"TIME_SLOT_REF{k}")) for k in (1, 2)]
        label = (part.findtext("ANNOTATION_VALUE") or "").strip()
        where = f"{path}, {part.get('ANNOTATION_ID')}"
        if not label or None in ends:
            lost += 1
            continue
        start, end = (_seconds(value, where) + origin_s for value in ends)
        found.rows.append(Marked(where, video, start, end, label))
    if lost:
        found.notes.append(f"{path}: {lost} annotations without a time or a value not used")


def _parsed(path: Path) -> ET.Element:
    """The document; one that declares entities is refused, ELAN writes none."""
    text = path.read_bytes()
    if b"<!ENTITY" in text or b"<!DOCTYPE" in text:
        raise InputError(f"{path}: declares XML entities; ELAN files do not")
    try:
        document = ET.fromstring(text)
    except ET.ParseError as error:
        raise InputError(f"{path}: not XML ({error})") from None
    if document.tag != "ANNOTATION_DOCUMENT":
        raise InputError(f"{path}: expected ANNOTATION_DOCUMENT, found {document.tag}")
    header = document.find("HEADER")
    units = "milliseconds" if header is None else header.get("TIME_UNITS", "milliseconds")
    if units != "milliseconds":
        raise InputError(f"{path}: time units {units}, expected milliseconds")
    return document


def _media(document: ET.Element, path: Path, found: Annotations) -> tuple[str, float]:
    """The video's name (the file's own where none is linked) and its time origin in seconds."""
    linked = document.findall("HEADER/MEDIA_DESCRIPTOR")
    if not linked:
        return path.stem, 0.0
    media = linked[0]
    url = media.get("RELATIVE_MEDIA_URL") or media.get("MEDIA_URL") or path.stem
    name = unquote(url).replace("\\", "/").rsplit("/", 1)[-1]
    if len(linked) > 1:
        found.notes.append(f"{path}: links {len(linked)} media, steps are of the first: {name}")
    return name, _seconds(media.get("TIME_ORIGIN") or "0", f"{path}, TIME_ORIGIN")


def _seconds(milliseconds: str | None, where: str) -> float:
    try:
        return float(milliseconds or 0) / 1000
    except ValueError:
        raise InputError(f"{where}: expected milliseconds, found {milliseconds!r}") from None


def _tier(document: ET.Element, wanted: str | None, path: Path) -> ET.Element | None:
    used = {
        tier.get("TIER_ID", ""): tier
        for tier in document.iterfind("TIER")
        if tier.find("ANNOTATION/ALIGNABLE_ANNOTATION") is not None
    }
    names = ", ".join(used) or "none with annotations"
    if wanted is not None:
        if wanted not in used:
            raise InputError(f"{path}: no tier {wanted!r}; tiers: {names}")
        return used[wanted]
    if len(used) > 1:
        raise InputError(f"{path}: several tiers ({names}); choose one with data.folder.tier")
    return next(iter(used.values()), None)
