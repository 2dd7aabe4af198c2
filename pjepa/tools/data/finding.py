"""One kind of finding about a source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pjepa.takes.annotations.notes import Note

Level = Literal["error", "warning"]


@dataclass(frozen=True)
class Finding:
    """One kind of finding; an error must be fixed, a warning should be known."""

    level: Level
    text: str
    names: tuple[str, ...] = ()  # the takes, files or labels it is about

    def line(self, most: int | None = None) -> str:
        """Return one line of the check; `most` limits the names in it."""
        return f"{self.level}: {Note(self.text, self.names).line(most)}"
