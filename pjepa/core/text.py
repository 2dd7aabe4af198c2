"""Text from data: natural order of names, and CSV cells safe for spreadsheets."""

from __future__ import annotations

import re

FORMULA = ("=", "+", "-", "@", "\t", "\r")  # spreadsheets read these as formulas


def natural(text: str) -> list[tuple[bool, int, str]]:
    """Return a key that sorts numbers inside names by value: G2 before G10."""
    parts = re.split(r"(\d+)", text)
    return [(part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in parts]


def sheet_cell(text: str) -> str:
    """Return text as a CSV cell that no spreadsheet reads as a formula.

    `text_of_cell` is the inverse.
    """
    return f"'{text}" if text.startswith(FORMULA) else text


def text_of_cell(cell: str) -> str:
    """Return the text of a cell, without the quote that stops formulas."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(FORMULA) else cell
