"""Groups that no data set names: a CSV of who or what takes share (the same surgeon, say).

Columns `take` (a take's id, or a recording for all its takes) and any of `group`, `participant` and
`recording`. Without `group`, the participant becomes the group, else the recording.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pjepa.config.data import DataConfig
from pjepa.errors import InputError
from pjepa.roots import inside
from pjepa.takes.framewise import closest
from pjepa.takes.text_files import Row, csv_table

FIELDS = ("group", "participant", "recording")
Takes = list[dict[str, Any]]


def regrouped(takes: Takes, path: Path) -> tuple[Takes, list[str]]:
    """The takes with what the file says about them, and what is to be told."""
    rows = _rows(path)
    names = {str(take[key]) for take in takes for key in ("take_id", "recording")}
    for name, row in rows.items():
        if name not in names:
            raise InputError(f"{row.where}: no take or recording {name!r}{closest(name, names)}")
    found = [_regrouped(take, rows) for take in takes]
    left = [take["take_id"] for take in takes if not _row_of(take, rows)]
    notes = [f"{path.name}: {len(takes) - len(left)} takes in {_groups(found)} groups"]
    if left:
        notes.append(
            f"{path.name}: says nothing about {len(left)} takes, which keep the groups they have: "
            f"{', '.join(left)}"
        )
    return found, notes


def groups_file(config: DataConfig, root: Path) -> Path:
    """The file that `data.groups` names, below the source's folder."""
    folder = root if config.path in (None, ".") else inside(root, str(config.path), "the data root")
    return inside(folder, str(config.groups), "the source's folder")


def _rows(path: Path) -> dict[str, Row]:
    table = csv_table(path, ("take",), optional=FIELDS, hint="data.groups names it")
    if not set(FIELDS) & set(table.columns):
        raise InputError(f"{path}, line 1: expected one of the columns {', '.join(FIELDS)}")
    rows: dict[str, Row] = {}
    for row in table.rows:
        name = row.cells["take"]
        if not name or not any(row.cells.get(field) for field in FIELDS):
            raise InputError(f"{row.where}: expected a take and its group, found {row.cells}")
        if name in rows:
            raise InputError(f"{row.where}: {name!r} stands there twice (also {rows[name].where})")
        rows[name] = row
    return rows


def _row_of(take: dict[str, Any], rows: dict[str, Row]) -> Row | None:
    """The row of the take itself, else of its recording."""
    return rows.get(take["take_id"]) or rows.get(take["recording"])


def _regrouped(take: dict[str, Any], rows: dict[str, Row]) -> dict[str, Any]:
    row = _row_of(take, rows)
    if row is None:
        return take
    given = {field: row.cells[field] for field in FIELDS if row.cells.get(field)}
    return {**take, "group": next(given[field] for field in FIELDS if field in given), **given}


def _groups(takes: Takes) -> int:
    return len({take["group"] for take in takes})
