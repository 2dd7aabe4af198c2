"""Notes from reading a source: one line per kind of finding, not one per case."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pjepa.ui.plain import plain_text

SHOWN = 3  # names shown in one line


@dataclass(frozen=True)
class Note:
    """One kind of finding, and the takes, files or labels it is about."""

    text: str
    names: tuple[str, ...] = ()

    def line(self, most: int | None = None) -> str:
        """Return the text with all names, or with the first few and the number of the rest."""
        if not self.names:
            return plain_text(self.text)
        shown = self.names[:most]
        more = len(self.names) - len(shown)
        line = f"{self.text}: {', '.join(shown)}" + (f" and {more} more" if more else "")
        return plain_text(line)  # names come from data


def gathered(notes: Iterable[Note]) -> list[Note]:
    """Return the notes with equal texts merged, in order of first appearance."""
    names: dict[str, list[str]] = {}
    for note in notes:
        names.setdefault(note.text, []).extend(note.names)
    return [Note(text, tuple(dict.fromkeys(found))) for text, found in names.items()]
