"""Groups given by the user: a CSV of what takes have in common (the same surgeon, say).

Columns `take` (a take's id, or a recording for all its takes) and any of `group`, `participant` and
`recording`. Without `group`, the participant becomes the group, else the recording.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pjepa.core.roots import inside
from pjepa.takes.annotations.notes import Note
from pjepa.takes.annotations.text_files import CsvRow, closest, csv_table
from pjepa.takes.config import DataConfig
from pjepa.takes.folders import set_folder
from pjepa.ui.errors import InputError

FIELDS = ("group", "participant", "recording")
TakeRows = list[dict[str, Any]]


def regrouped(takes: TakeRows, path: Path) -> tuple[TakeRows, list[Note]]:
    """Return the takes with the groups of the file, and notes for the user."""
    rows = _rows(path)
    names = {str(take[key]) for take in takes for key in ("take_id", "recording")}
    for name, row in rows.items():
        if name not in names:
            raise InputError(f"{row.where}: no take or recording {name!r}{closest(name, names)}")
    found = [_regrouped(take, rows) for take in takes]
    left = [take["take_id"] for take in takes if not _row_of(take, rows)]
    notes = [Note(f"{path.name}: {len(takes) - len(left)} takes in {_groups(found)} groups")]
    if left:
        told = f"{path.name}: has no row for {len(left)} takes, which keep their groups"
        notes.append(Note(told, tuple(left)))
    return found, notes


def groups_file(config: DataConfig, root: Path) -> Path:
    """Return the file that `data.groups` names: in the set's own folder, else in the source's."""
    folder = inside(root, "." if config.path is None else config.path, "the data root")
    places = [folder]
    if config.source == "mstcn":  # whose folder may hold several sets
        places.insert(0, root / set_folder(config.mstcn, root))
    files = [inside(place, str(config.groups), "the source's folder") for place in places]
    return next((file for file in files if file.is_file()), files[0])


def _rows(path: Path) -> dict[str, CsvRow]:
    table = csv_table(path, ("take",), optional=FIELDS, hint="data.groups names it")
    if not set(FIELDS) & set(table.columns):
        raise InputError(f"{path}, line 1: expected one of the columns {', '.join(FIELDS)}")
    rows: dict[str, CsvRow] = {}
    for row in table.rows:
        name = row.cells["take"]
        if not name or not any(row.cells.get(field) for field in FIELDS):
            raise InputError(f"{row.where}: expected a take and its group, found {row.cells}")
        if name in rows:
            raise InputError(f"{row.where}: {name!r} appears twice (also {rows[name].where})")
        rows[name] = row
    return rows


def _row_of(take: dict[str, Any], rows: dict[str, CsvRow]) -> CsvRow | None:
    """Return the row of the take itself, else of its recording."""
    return rows.get(take["take_id"]) or rows.get(take["recording"])


def _regrouped(take: dict[str, Any], rows: dict[str, CsvRow]) -> dict[str, Any]:
    row = _row_of(take, rows)
    if row is None:
        return take
    given = {field: row.cells[field] for field in FIELDS if row.cells.get(field)}
    return {**take, "group": next(given[field] for field in FIELDS if field in given), **given}


def _groups(takes: TakeRows) -> int:
    return len({take["group"] for take in takes})
