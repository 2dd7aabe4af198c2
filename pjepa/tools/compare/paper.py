"""Our numbers beside the paper's for one preset, and where the two are not like for like.

paper.csv has the paper's tables, a line for every number of ours, in percent. `combined` is what
the authors' file names say of an encoder: accuracy twice (or with and without background), edit and
the three F1, each 0 to 1, added up; of a linear or two-head probe, best epoch of the split.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pjepa.metrics.segmentation import combined_score
from pjepa.report.results import OFFLINE, Cell, CellFolder, read_cell
from pjepa.tools.compare import compare
from pjepa.tools.params import Params
from pjepa.tools.presets import preset_values
from pjepa.ui.console import InputError

COMBINED, SIX = "combined", 6  # the metric, and how many scores the release adds up
SCORES = ("acc_bg", "acc", "edit", "f1_10", "f1_25", "f1_50", "top1", COMBINED)
RELEASE = "release"  # a number of the authors' files: in no table of the paper
SHOWN = 8  # parameters named one by one
# That change what is computed on, not what is computed: they are no difference.
RUNNING = re.compile(
    r"(^|\.)(threads|workers|device|executor|stream|processes|compile|batch_windows|precision)$"
)


@dataclass(frozen=True)
class PaperRow:
    """One row of a table of the paper, and which of our numbers belongs beside it."""

    table: str
    probe: str
    representation: str
    scores: Mapping[str, float]
    protocol: str = OFFLINE  # or segments: streaming, one annotated segment at a time
    label_fraction: float = 1.0
    takes: int | None = None  # that the paper reports on

    @property
    def name(self) -> str:
        if self.table == RELEASE:
            return f"release: {self.probe} on {self.representation}, six scores added"
        streamed = " streamed" if self.protocol != OFFLINE else ""
        budget = f" {100 * self.label_fraction:g} %" if self.label_fraction < 1 else ""
        return f"{self.table}: {self.probe} on {self.representation}{streamed}{budget}"


def paper_rows() -> dict[str, list[PaperRow]]:
    """Return the rows of every preset that repeats a table of the paper."""
    rows: dict[str, list[PaperRow]] = {}
    with Path(__file__).with_name("paper.csv").open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            row = PaperRow(
                line["table"],
                line["probe"],
                line["representation"],
                {name: float(line[name]) for name in SCORES if line[name]},
                line["protocol"],
                float(line["label_fraction"]),
                int(line["takes"]) if line["takes"] else None,
            )
            for preset in line["presets"].split():
                rows.setdefault(preset, []).append(row)
    return rows


PAPER = paper_rows()


@dataclass(frozen=True)
class Compared:
    """One row of the paper, ours where it was run, and what sets the two apart."""

    name: str
    paper: Mapping[str, float]
    ours: Mapping[str, float] | None
    apart: tuple[str, ...] = ()


@dataclass(frozen=True)
class PaperTable:
    """The rows of one preset, and what is not like for like in all of them."""

    rows: tuple[Compared, ...]
    notes: tuple[str, ...] = ()

    @property
    def metrics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for row in self.rows for name in row.paper))


def applied_preset(params: Params, names: Sequence[str]) -> str:
    """Return the preset that params.yaml is, or is nearest to among those of the same data."""
    presets = {name: preset_values(name) for name in names}
    same = {
        name: len(changed_params(values, params))
        for name, values in presets.items()
        if _data_set(values) == _data_set(params)
    }
    if not same:
        raise InputError(
            f"no preset is for these data ({': '.join(_data_set(params))}); name one with "
            f"--preset: {', '.join(sorted(PAPER))}"
        )
    return min(same, key=lambda name: (same[name], not _in_paper(name), name))


def _in_paper(preset: str) -> bool:
    return any(row.table != RELEASE for row in PAPER.get(preset, ()))


def _data_set(params: Params) -> list[str]:
    """Return the data source, and which set it reads if it reads several."""
    data = params.data
    named = {"archive": data.archive.set, "mstcn": data.mstcn.dataset}
    return [data.source, *([str(named[data.source])] if data.source in named else [])]


def changed_params(preset: Params, params: Params) -> list[str]:
    """Return `name value (the preset's)` of every parameter that bears on numbers and differs."""
    values = (each.model_dump(mode="json") for each in (preset, params))
    return [
        f"{name} {ours} ({theirs})"
        for name, (theirs, ours) in compare.changed_params(*values).items()
        if not RUNNING.search(name) and not name.startswith(("cells.", "report."))
    ]


def paper_table(preset: str, params: Params, folder: CellFolder) -> PaperTable:
    """Return the paper's rows for a preset with ours beside them."""
    if preset not in PAPER:
        there = ", ".join(sorted(PAPER))
        raise InputError(f"preset {preset}: the paper has no numbers for it; it has for: {there}")
    fraction = params.probe.common.label_fraction  # type: ignore[attr-defined]
    rows = [row for row in PAPER[preset] if row.table == RELEASE or row.label_fraction == fraction]
    notes = []
    if not _in_paper(preset):
        notes.append("not in the paper: the number is from the authors' release")
    elif all(row.table == RELEASE for row in rows):
        notes.append(f"the paper has no row for probe.common.label_fraction {fraction:g}")
    if changed := changed_params(preset_values(preset), params):
        more = len(changed) - SHOWN
        rest = f" and {more} more" if more > 0 else ""
        notes.append(f"params.yaml is not the preset: {'; '.join(changed[:SHOWN])}{rest}")
    return PaperTable(tuple(_compared(row, preset, folder) for row in rows), tuple(notes))


def _compared(row: PaperRow, preset: str, folder: CellFolder) -> Compared:
    path = folder(row.probe, row.representation)
    if not (path / "details.json").exists():
        return Compared(row.name, row.scores, None)
    cell = read_cell(row.probe, row.representation, path)
    if row.protocol == OFFLINE:
        ours = dict(cell.paper or cell.metrics)  # of a linear probe those of the paper's recipe
    elif row.protocol in cell.streamed:
        ours = dict(cell.streamed[row.protocol].metrics)
    else:
        return Compared(row.name, row.scores, None)
    if COMBINED in row.scores:
        ours[COMBINED] = SIX * combined_score(ours) / 100
    shown = {metric: ours[metric] for metric in row.scores if metric in ours}
    return Compared(row.name, row.scores, shown, tuple(_apart(row, cell, preset)))


def _apart(row: PaperRow, cell: Cell, preset: str) -> list[str]:
    """Return why the two numbers are not directly comparable."""
    takes = len(cell.statistics.groups)
    unfitted = row.protocol == OFFLINE and not cell.paper and cell.probe == "linear"
    reasons = {
        "we choose on held-out train groups, the paper on the split it reports": (
            cell.selection == "holdout"
        ),
        "we keep the last epoch, the paper the best one of the split it reports": (
            cell.selection == "last"
        ),
        f"the encoder itself was chosen on {cell.provenance.selection_labels}": (
            cell.provenance.selection_labels in ("val", "test")
        ),
        f"we report on {takes} takes of `{cell.split}`, the paper on {row.takes}": (
            row.takes not in (None, takes)
        ),
        "the archive has 423 videos, the paper 914": (
            "egoprocel" in preset and preset.startswith("release-")
        ),
        "ours was given no boundaries, the paper's had the annotated ones": (
            cell.representation == "pjepa" and not cell.given_boundaries
        ),
        "ours is causal, the paper's normalises over the take: kind=release compares": (
            cell.probe == "ltcausal" and not cell.sight["whole_take"]
        ),
        f"scores pooled as in `{cell.convention}`, the paper's as in the release": (
            cell.convention != "release"
        ),
        "fitted to convergence, the paper's for 30 epochs": unfitted and row.table != RELEASE,
        f"mean of {cell.runs} runs, the paper's is one": cell.runs > 1,
    }
    return [reason for reason, holds in reasons.items() if holds]


def text_rows(table: PaperTable) -> tuple[list[str], list[list[str]]]:
    """Return header and rows for the terminal: paper, ours and the difference below each other."""
    rows = []
    for row in table.rows:
        rows.append([row.name, "paper", *(_number(row.paper, m) for m in table.metrics)])
        if row.ours is None:
            rows.append(["", "ours", *("not run" if m in row.paper else "" for m in table.metrics)])
            continue
        rows.append(["", "ours", *(_number(row.ours, m) for m in table.metrics)])
        changes = {m: f"{row.ours[m] - row.paper[m]:+.1f}" for m in row.ours}
        rows.append(["", "ours - paper", *(changes.get(m, "") for m in table.metrics)])
    return ["", "", *table.metrics], rows


def caveats(table: PaperTable) -> list[str]:
    """Return the sentences on what is not like for like, each once, with the rows it holds for."""
    lines = list(table.notes)
    run = [row for row in table.rows if row.ours is not None]
    for sentence in dict.fromkeys(sentence for row in run for sentence in row.apart):
        names = [row.name for row in run if sentence in row.apart]
        where = "all rows" if len(names) == len(run) else "; ".join(names)
        lines.append(f"{sentence} ({where})")
    return lines


def latex(table: PaperTable) -> str:
    """Return the same as a booktabs table; what is not like for like is listed below it."""
    rows = []
    for row in table.rows:
        paper, ours = (
            ["--" if scores is None else _number(scores, m) for m in table.metrics]
            for scores in (row.paper, row.ours)
        )
        rows += [[_escaped(row.name), "paper", *paper], ["", "ours", *ours]]
    head = ["", "", *(_escaped(metric) for metric in table.metrics)]
    body = [rf"{' & '.join(cells)} \\" for cells in (head, *rows)]
    lines = [rf"\begin{{tabular}}{{ll{'r' * len(table.metrics)}}}", r"\toprule", body[0]]
    lines += [r"\midrule", *body[1:], r"\bottomrule", r"\end{tabular}"]
    return "\n".join(
        [*lines, *(rf"\par\footnotesize {_escaped(line)}." for line in caveats(table))]
    )


def _number(scores: Mapping[str, float], metric: str) -> str:
    value = scores.get(metric)
    return "" if value is None else f"{value:.2f}" if value < 5 else f"{value:.1f}"


def _escaped(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in text.replace("`", ""))
