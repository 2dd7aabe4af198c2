"""ELAN .eaf files: the annotations of one tier, whatever its kind, as steps of the linked video."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from urllib.parse import unquote

from pjepa.takes.annotations.elan_tiers import Tiers, Vocabulary
from pjepa.takes.annotations.notes import Note
from pjepa.takes.annotations.rows import Annotations, Marked
from pjepa.takes.annotations.text_files import xml_root
from pjepa.ui.errors import InputError
from pjepa.video.files import VIDEO_SUFFIXES


def read_elan(path: Path, tier: str | None, found: Annotations) -> None:
    """Add the annotations of one tier; if several have some, `tier` must name one."""
    document = _document(path)
    video, origin_s = _media(document, path, found)
    tiers = Tiers(document, path)
    name = _chosen(tiers, tier, found)
    rows: list[Marked] = []
    lost = 0
    words = Vocabulary(document, tiers.elements[name]) if name else None
    for part in tiers.parts(name) if name else ():
        label = part.value or (words.entries.get(part.entry, "") if words else "")
        if not label or part.span is None:
            lost += 1
            continue
        start, end = (value / 1000 + origin_s for value in part.span)
        rows.append(Marked(f"{path}, {part.ident}", video, start, end, label))
    found.rows += rows or [Marked(str(path), video)]
    if lost:
        about = (f"{path.name} ({lost})",)
        found.notes.append(Note("annotations without a time or a value not used", about))
    if words is not None and words.entries:
        found.vocabulary |= dict.fromkeys(words.entries.values())


def _document(path: Path) -> ET.Element:
    document = xml_root(path, "ELAN files")
    if document.tag != "ANNOTATION_DOCUMENT":
        raise InputError(f"{path}: expected ANNOTATION_DOCUMENT, found {document.tag}")
    header = document.find("HEADER")
    units = "milliseconds" if header is None else header.get("TIME_UNITS", "milliseconds")
    if units != "milliseconds":
        raise InputError(f"{path}: time units {units}, expected milliseconds")
    return document


def _media(document: ET.Element, path: Path, found: Annotations) -> tuple[str, float]:
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
        found.notes.append(Note("several videos are linked, steps are of the first", (about,)))
    origin = media.get("TIME_ORIGIN") or "0"
    try:
        return name, float(origin) / 1000
    except ValueError:
        raise InputError(f"{path}, TIME_ORIGIN: expected milliseconds, found {origin!r}") from None


def _is_video(media: ET.Element) -> bool:
    kind = media.get("MIME_TYPE", "")
    return kind.startswith("video") or _file_name(media).lower().endswith(VIDEO_SUFFIXES)


def _file_name(media: ET.Element) -> str:
    url = media.get("RELATIVE_MEDIA_URL") or media.get("MEDIA_URL") or ""
    return unquote(url).replace("\\", "/").rsplit("/", 1)[-1]


def _chosen(tiers: Tiers, wanted: str | None, found: Annotations) -> str | None:
    """Return the tier to read: the requested one, the only one in use, or the others' parent."""
    path, used = tiers.path, tiers.used
    if wanted is not None:
        if wanted not in tiers.elements:
            raise InputError(f"{path}: no tier {wanted!r}; tiers: {', '.join(tiers.elements)}")
        if wanted not in used:
            found.notes.append(Note(f"tier {wanted!r} is empty: no steps", (path.name,)))
        return wanted
    tops = [name for name in used if tiers.parent(name) not in used]
    if len(tops) > 1:
        names = ", ".join(used)
        raise InputError(f"{path}: several tiers ({names}); choose one with data.folder.tier")
    if len(used) > 1:
        rest = ", ".join(name for name in used if name != tops[0])
        told = f"steps are of tier {tops[0]!r}, not of {rest}, which depend on it"
        found.notes.append(Note(told, (path.name,)))
    return tops[0] if tops else None
