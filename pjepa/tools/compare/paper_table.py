"""Our numbers beside the paper's for one preset, and where the two are not like for like."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pjepa.metrics.segmentation import combined_score
from pjepa.report.numbers.results import Cell, CellFolder, read_cell
from pjepa.tools.compare.paper_numbers import COMBINED, PAPER, PaperRow
from pjepa.tools.data.locked import flat
from pjepa.tools.params import Params
from pjepa.tools.presets import preset_values
from pjepa.ui.errors import InputError

SIX = 6  # scores that the release adds up
SHOWN = 8  # parameters named one by one
# That change what is computed on, not what is computed: they are no difference.
RUNNING = (
    "threads",
    "workers",
    "device",
    "executor",
    "stream",
    "processes",
    "compile",
    "batch_windows",
    "precision",
)


@dataclass(frozen=True)
class Compared:
    """One row of the paper, ours where it was run, and what sets the two apart."""

    name: str
    paper: Mapping[str, float]
    ours: Mapping[str, float] | None
    apart: tuple[str, ...] = ()


@dataclass(frozen=True)
class PaperTable:
    """The rows of one preset; `changed` lists parameters that are not the preset's."""

    rows: tuple[Compared, ...]
    changed: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for row in self.rows for name in row.paper))


def applied_preset(params: Params, names: Sequence[str]) -> str:
    """Return the preset that params.yaml is, or is nearest to among those of the same data."""
    known = {name: preset_values(name) for name in names}
    same = {
        name: len(changed_params(values, params))
        for name, values in known.items()
        if _data_set(values) == _data_set(params)
    }
    if not same:
        raise InputError(
            f"no preset is for these data ({': '.join(_data_set(params))}); name one with "
            f"--preset: {', '.join(sorted({*PAPER, *COMBINED}))}"
        )
    return min(same, key=lambda name: (same[name], name not in PAPER, name))


def _data_set(params: Params) -> list[str]:
    """Return the data source, and which set it reads if it reads several."""
    data = params.data
    named = {"archive": data.archive.set, "mstcn": data.mstcn.dataset}
    return [data.source, *([str(named[data.source])] if data.source in named else [])]


def changed_params(preset: Params, params: Params) -> list[str]:
    """Return `place value (the preset's)` of every parameter that bears on numbers and differs."""
    wanted, found = flat(preset.model_dump(mode="json")), flat(params.model_dump(mode="json"))
    return [
        f"{place} {found[place]} ({value})"
        for place, value in wanted.items()
        if found.get(place) != value
        and place.rsplit(".", 1)[-1] not in RUNNING
        and not place.startswith(("cells.", "report."))
    ]


def paper_table(preset: str, params: Params, folder: CellFolder) -> PaperTable:
    """Return the paper's rows for a preset with ours beside them."""
    if preset not in PAPER and preset not in COMBINED:
        there = ", ".join(sorted({*PAPER, *COMBINED}))
        raise InputError(f"preset {preset}: the paper has no numbers for it; it has for: {there}")
    fraction = params.probe.common.label_fraction  # type: ignore[attr-defined]
    wanted = [row for row in PAPER.get(preset, ()) if row.label_fraction == fraction]
    rows = [_compared(row, preset, folder) for row in wanted]
    if preset in COMBINED:
        rows.append(_combined(preset, folder))
    notes = []
    if not wanted and preset in PAPER:
        notes.append(f"the paper has no row for probe.common.label_fraction {fraction:g}")
    if preset not in PAPER:
        notes.append("not in the paper: the number is from the authors' release")
    changed = changed_params(preset_values(preset), params)
    return PaperTable(tuple(rows), tuple(changed), tuple(notes))


def _cell(probe: str, representation: str, folder: CellFolder) -> Cell | None:
    place = folder(probe, representation)
    return read_cell(probe, representation, place) if (place / "details.json").exists() else None


def _compared(row: PaperRow, preset: str, folder: CellFolder) -> Compared:
    streamed = " streamed" if row.protocol != "offline" else ""
    budget = f" {100 * row.label_fraction:g} %" if row.label_fraction < 1 else ""
    name = f"{row.table}: {row.probe} on {row.representation}{streamed}{budget}"
    cell = _cell(row.probe, row.representation, folder)
    ours = None if cell is None else _ours(cell, row.protocol)
    if cell is None or ours is None:
        return Compared(name, row.scores, None)
    shown = {metric: ours[metric] for metric in row.scores if metric in ours}
    return Compared(name, row.scores, shown, tuple(_apart(row, cell, preset)))


def _ours(cell: Cell, protocol: str) -> Mapping[str, float] | None:
    """Return offline or streamed scores; of a linear probe those of the paper's recipe."""
    if protocol == "offline":
        return cell.paper or cell.metrics
    streamed = cell.streamed.get(protocol)
    return None if streamed is None else streamed.metrics


def _combined(preset: str, folder: CellFolder) -> Compared:
    probe = "foreground" if "egoprocel" in preset else "linear"
    cell = _cell(probe, "pjepa", folder)
    name = f"release: {probe} on pjepa, six scores added"
    if cell is None:
        return Compared(name, {"combined": COMBINED[preset]}, None)
    ours = SIX * combined_score(cell.paper or cell.metrics) / 100
    return Compared(
        name, {"combined": COMBINED[preset]}, {"combined": ours}, tuple(_apart(None, cell, preset))
    )


def _apart(row: PaperRow | None, cell: Cell, preset: str) -> list[str]:
    """Return why the two numbers are not directly comparable."""
    found = []
    if cell.selection == "holdout":
        found.append("we choose on held-out train groups, the paper on the split it reports")
    elif cell.selection == "last":
        found.append("we keep the last epoch, the paper the best one of the split it reports")
    if cell.provenance.selection_labels in ("val", "test"):
        found.append(f"the encoder itself was chosen on {cell.provenance.selection_labels}")
    takes = len(cell.statistics.groups)
    if row is not None and row.takes is not None and takes != row.takes:
        found.append(f"we report on {takes} takes of `{cell.split}`, the paper on {row.takes}")
    if "egoprocel" in preset and preset.startswith("release-"):
        found.append("the archive has 423 videos, the paper 914")
    if cell.representation == "pjepa" and not cell.given_boundaries:
        found.append("ours was given no boundaries, the paper's had the annotated ones")
    if cell.probe == "ltcausal" and not cell.sight["whole_take"]:
        found.append("ours is causal, the paper's normalises over the take: kind=release compares")
    if cell.convention != "release":
        found.append(f"scores pooled as in `{cell.convention}`, the paper's as in the release")
    if row is not None and row.protocol == "offline" and not cell.paper and cell.probe == "linear":
        found.append("fitted to convergence, the paper's for 30 epochs")
    if cell.runs > 1:
        found.append(f"mean of {cell.runs} runs, the paper's is one")
    return found


def text_rows(table: PaperTable) -> tuple[list[str], list[list[str]]]:
    """Return header and rows for the terminal: paper, ours and the difference below each other."""
    rows = []
    for row in table.rows:
        rows.append([row.name, "paper", *(_number(row.paper.get(m)) for m in table.metrics)])
        if row.ours is None:
            rows.append(["", "ours", *("not run" if m in row.paper else "" for m in table.metrics)])
            continue
        rows.append(["", "ours", *(_number(row.ours.get(m)) for m in table.metrics)])
        change = (_change(row.ours.get(m), row.paper.get(m)) for m in table.metrics)
        rows.append(["", "ours - paper", *change])
    return ["", "", *table.metrics], rows


def caveats(table: PaperTable) -> list[str]:
    """Return the sentences on what is not like for like, each once, with the rows it holds for."""
    lines = list(table.notes)
    if table.changed:
        more = len(table.changed) - SHOWN
        rest = f" and {more} more" if more > 0 else ""
        lines.append(f"params.yaml is not the preset: {'; '.join(table.changed[:SHOWN])}{rest}")
    run = [row for row in table.rows if row.ours is not None]
    for sentence in dict.fromkeys(sentence for row in run for sentence in row.apart):
        names = [row.name for row in run if sentence in row.apart]
        where = "all rows" if len(names) == len(run) else "; ".join(names)
        lines.append(f"{sentence} ({where})")
    return lines


def latex(table: PaperTable) -> str:
    """Return the same as a booktabs table; what is not like for like is listed below it."""
    head = " & ".join(_escaped(metric) for metric in table.metrics)
    lines = [rf"\begin{{tabular}}{{ll{'r' * len(table.metrics)}}}", r"\toprule",
             rf"& & {head} \\", r"\midrule"]  # fmt: skip
    for row in table.rows:
        paper = " & ".join(_number(row.paper.get(m)) for m in table.metrics)
        ours = " & ".join(
            "--" if row.ours is None else _number(row.ours.get(m)) for m in table.metrics
        )
        lines += [rf"{_escaped(row.name)} & paper & {paper} \\", rf"& ours & {ours} \\"]
    lines += [r"\bottomrule", r"\end{tabular}"]
    notes = [rf"\par\footnotesize {_escaped(line)}." for line in caveats(table)]
    return "\n".join([*lines, *notes])


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if value < 5 else f"{value:.1f}"


def _change(ours: float | None, paper: float | None) -> str:
    return "" if ours is None or paper is None else f"{ours - paper:+.1f}"


def _escaped(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in text.replace("`", ""))
