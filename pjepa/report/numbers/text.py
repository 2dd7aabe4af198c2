"""Markdown from data: safe on one line, and tables."""

from __future__ import annotations

import re
from collections.abc import Sequence


def escaped(text: str) -> str:
    """Return the text from data as literal Markdown, on one line, safe inside a table."""
    return re.sub(r"([\\`*_\[\]<>|#!~&$])", r"\\\1", " ".join(text.split()))


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table whose columns after the first are right-aligned.

    Cells are Markdown.
    """
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, rule, *rows])
