"""Text from data: natural order of names, CSV cells safe for spreadsheets, Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # spreadsheets read these as formulas
NUMBER = re.compile(r"[*`]*[+-]?[\d.]")  # how a cell of a column of numbers begins


def natural(text: str) -> list[tuple[bool, int, str]]:
    """Return a key that sorts numbers inside names by value: G2 before G10."""
    parts = re.split(r"(\d+)", text)
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]


def did_you_mean(name: str, names: Iterable[str], otherwise: str = "", cutoff: float = 0.6) -> str:
    """Return the end of an error about an unknown name: the nearest one, or what else to say."""
    near = get_close_matches(name, list(names), n=1, cutoff=cutoff)
    return f"; did you mean {near[0]}?" if near else otherwise


def sheet_cell(text: str) -> str:
    """Return text as a CSV cell that no spreadsheet reads as a formula.

    `text_of_cell` is the inverse.
    """
    return f"'{text}" if text.startswith(FORMULA) else text


def text_of_cell(cell: str) -> str:
    """Return the text of a cell, without the quote that stops formulas."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA) else cell


def escaped(text: str) -> str:
    """Return the text from data as literal Markdown, on one line, safe inside a table."""
    return re.sub(r"([\\`*_\[\]<>|#!~&$])", r"\\\1", " ".join(text.split()))


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, columns of numbers right-aligned. Cells are Markdown."""
    rule = ["---"]
    for column in range(1, len(header)):
        numbers = all(NUMBER.match(row[column]) for row in rows if row[column])
        rule.append("---:" if numbers else "---")
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, rule, *rows])
