"""The paper's tables as numbers, by the preset that repeats them; percent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pjepa.metrics.segmentation import combined_score
from pjepa.report.results import Cell, CellFolder, read_cell
from pjepa.tools.params import Params, dotted
from pjepa.tools.presets import preset_values
from pjepa.ui.console import InputError

PaperProtocol = Literal[
    "offline", "segments"
]  # segments: streaming, one annotated segment at a time
SEGMENTATION = ("acc", "edit", "f1_10", "f1_25", "f1_50")
WITH_BACKGROUND = ("acc_bg", "acc", "edit", "f1_10", "f1_25", "f1_50")


@dataclass(frozen=True)
class PaperRow:
    """One row of a table of the paper, and which of our numbers belongs beside it."""

    table: str
    probe: str
    representation: str
    scores: Mapping[str, float]
    protocol: PaperProtocol = "offline"
    label_fraction: float = 1.0
    takes: int | None = None  # that the paper reports on


def _rows(
    table: str,
    probe: str,
    names: tuple[str, ...],
    takes: int,
    *values: tuple[float, ...],
    protocol: PaperProtocol = "offline",
    label_fraction: float = 1.0,
) -> tuple[PaperRow, PaperRow]:
    """Return the row without P-JEPA and the row with it."""
    raw, pjepa = (
        PaperRow(
            table, probe, representation, dict(zip(names, row, strict=True)), protocol,
            label_fraction, takes,
        )
        for representation, row in zip(("raw", "pjepa"), values, strict=True)
    )  # fmt: skip
    return raw, pjepa


def _a101(
    table: str, probe: str, raw: tuple[float, ...], pjepa: tuple[float, ...]
) -> tuple[PaperRow, ...]:
    return _rows(f"Table 1, {table}", probe, SEGMENTATION, 120, raw, pjepa)


TSM = (
    *_a101("TSM", "linear", (23.5, 3.0, 2.4, 1.1, 0.4), (40.1, 15.0, 15.2, 13.1, 9.8)),
    *_a101("TSM", "ltcontext", (40.2, 32.2, 34.3, 30.5, 22.4), (42.9, 35.9, 37.3, 34.0, 26.4)),
)
MEAN = (
    *_a101("V-JEPA mean", "linear", (16.1, 3.3, 2.7, 1.9, 1.1), (29.4, 18.6, 16.0, 13.5, 10.3)),
    *_a101(
        "V-JEPA mean", "ltcontext", (30.6, 26.2, 26.0, 21.7, 14.3), (33.8, 27.6, 29.3, 25.0, 18.7)
    ),
)
ACTION = (
    *_a101(
        "V-JEPA action", "linear", (34.0, 18.5, 17.8, 15.5, 10.2), (40.0, 27.8, 26.0, 23.0, 16.9)
    ),
    *_a101(
        "V-JEPA action", "ltcontext", (41.6, 32.7, 34.4, 30.1, 21.9),
        (43.0, 34.2, 35.9, 31.5, 22.3),
    ),
)  # fmt: skip
STREAMING = (
    *_rows(
        "Table 3", "fact", WITH_BACKGROUND, 183, (69.2, 19.2, 18.1, 14.8, 13.8, 10.9),
        (76.8, 39.1, 28.8, 26.9, 25.9, 24.1), protocol="segments",
    ),
    *_rows(
        "Table 3", "ltcausal", WITH_BACKGROUND, 183, (78.6, 55.3, 40.2, 35.0, 32.0, 25.7),
        (80.8, 58.8, 48.9, 42.1, 40.3, 34.4), protocol="segments",
    ),
)  # fmt: skip
_BUDGETS = {
    0.15: ((76.1, 50.8, 41.8, 41.5, 37.8, 26.3), (78.9, 50.1, 52.1, 48.6, 45.6, 36.9)),
    0.33: ((80.7, 61.4, 53.9, 52.3, 49.5, 38.5), (84.5, 66.1, 65.2, 60.1, 57.9, 52.2)),
    0.5: ((83.7, 67.5, 64.6, 62.5, 60.0, 48.1), (88.0, 74.4, 72.7, 67.3, 65.3, 59.8)),
    1.0: ((89.5, 81.8, 83.7, 76.5, 74.5, 68.1), (90.9, 81.2, 81.6, 75.0, 73.5, 69.8)),
}
SPARSITY = tuple(
    row
    for fraction, values in _BUDGETS.items()
    for row in _rows(
        "Table 4", "fact", WITH_BACKGROUND, 183, *values, label_fraction=fraction
    )
)  # fmt: skip
KEYSTEPS = (PaperRow("Table 5", "attentive", "pjepa", {"top1": 56.85}, takes=180),)

PAPER: dict[str, tuple[PaperRow, ...]] = {
    "release-eval-assembly101-clip": TSM,
    "release-assembly101-clip": TSM,
    "assembly101-vjepa-mean": MEAN,
    "assembly101-vjepa-action": ACTION,
    "egoprocel-i3d-streaming": STREAMING,
    "egoprocel-i3d-sparsity": SPARSITY,
    "release-egoprocel-fact": STREAMING,
    "release-eval-egoprocel-fact": STREAMING,
    "egoexo4d": KEYSTEPS,
    "egoexo4d-literal": KEYSTEPS,
}
# What the authors' file names say of an encoder: accuracy twice (or with and without background),
# edit and the three F1, each 0 to 1, added up; a linear or two-head probe, best epoch of the split.
COMBINED: dict[str, float] = {
    "release-eval-assembly101-clip": 1.3333,
    "release-assembly101-clip": 1.3333,
    "release-eval-assembly101-block": 1.1981,
    "release-assembly101-block": 1.1981,
    "release-eval-egoprocel-fact": 2.2408,
    "release-egoprocel-fact": 2.2408,
    "release-eval-egoprocel-pooled": 2.7409,
    "release-egoprocel-pooled": 2.7409,
}


# Our numbers beside the paper's for one preset, and where the two are not like for like.

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
    wanted, found = dotted(preset.model_dump(mode="json")), dotted(params.model_dump(mode="json"))
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
