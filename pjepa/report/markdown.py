"""The texts and tables of the report as Markdown, grouped by what a representation was given."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from pjepa.core.tables import Classes
from pjepa.core.text import escaped, markdown_table
from pjepa.metrics.bootstrap import FEWEST
from pjepa.metrics.lengths import LengthBin
from pjepa.metrics.segmentation import convention_named
from pjepa.report.analyses import (
    LEARNED,
    SHOWN,
    Medians,
)
from pjepa.report.gains import ClassGain, DemoNumbers, proof_claims
from pjepa.report.page import templates
from pjepa.report.results import COMPARISONS, OFFLINE, REFERENCE, Cell, Difference, Results
from pjepa.report.tables import (
    LEGEND,
    TRACKED,
    bold_if_sure,
    by_privilege,
    claim_line,
    marked_name,
    metric_names,
    span,
    with_mark,
    with_span,
)
from pjepa.report.widgets import length_name

SPACES = re.compile("[ \n]+")


def text(name: str, **values: Any) -> str:
    """Return a paragraph of assets/texts.md."""
    return SPACES.sub(" ", getattr(_texts(), name)(**values)).strip()


@cache
def _texts() -> Any:
    return templates().get_template("texts.md").module


# The finding of a run in one sentence, and one line that explains each representation.

ABOUT = {
    "raw": "the tokens as they are: what one moment of video shows, without context",
    "smooth": "moving average of the past raw tokens",
    "segment_mean": "raw tokens averaged over their annotated segment",
    "history": "averages of this and the past segments: context without learning",
    "time": "the place in the take alone, no video: what order and timing give away",
    "pjepa": "the pretrained encoder: every token with the procedure so far",
    "pjepa_segment": "`pjepa` averaged over its segment",
    "random": "the same encoder, untrained: what the architecture gives without learning",
    "forecast": "what the encoder expects to follow, and how much a segment surprises it",
}
CONTROLS = ("smooth", "segment_mean", "history", "time", "random")


def headline(results: Results) -> str:
    """Return the finding as Markdown: P-JEPA against raw and against the best control.

    Empty if no probe has both `raw` and `pjepa`.
    """
    for probe in results.probes:
        before, after = (results.cell(probe, name) for name in SHOWN)
        gain = results.difference(probe, LEARNED, REFERENCE)
        if before and after and gain:
            controls = [c for c in results.of_probe(probe) if c.representation in CONTROLS]
            best = max(controls, key=lambda cell: cell.metrics["acc"], default=None)
            over = best and results.difference(probe, LEARNED, best.representation)
            return text(
                "headline",
                probe=probe,
                before=before,
                after=after,
                gain=gain.intervals["acc"],
                control=best,
                over_control=over and over.intervals["acc"],
            )
    return ""


def about(cells: list[Cell]) -> str:
    """Return one line for each representation of one probe, in the order of the chart."""
    rows = [[f"`{marked_name(c)}`", ABOUT[c.representation]] for c in by_privilege(cells)]
    return markdown_table(["representation", "what it is"], rows)


# Scores: offline, streamed (the future hidden), and what they mean.

PRIVILEGES = {True: "with annotated boundaries", False: "without annotated boundaries"}
PROTOCOLS = {
    "segments": "one annotated segment at a time (paper Table 3)",
    "seconds": "fixed seconds at a time (the steps need no boundaries)",
}
CHOSEN = {
    "holdout": "the held-out part of train",
    "val": "val, a published habit",
    "test": "test, a published habit",
    "last": "nothing: the last epoch is kept",
}


def overview(results: Results) -> str:
    """Return `acc` of every probe on every representation, offline and streamed."""
    names = list(dict.fromkeys(cell.representation for cell in results.cells))
    rows = []
    for probe in results.probes:
        cells = {cell.representation: cell for cell in results.of_probe(probe)}
        marked = with_mark(probe, list(cells.values()))
        for protocol in (OFFLINE, *PROTOCOLS):
            if any(protocol in (OFFLINE, *cell.streamed) for cell in cells.values()):
                values = [score_text(results, cells[name], "acc", protocol) for name in names]
                rows.append([marked, protocol, *values])
    heads = {cell.representation: f"`{marked_name(cell)}`" for cell in results.cells}
    return markdown_table(["probe", "context", *(heads[name] for name in names)], rows)


def scores(results: Results, probe: str) -> str:
    """Return the headline table; bold: significantly better than raw (95 % interval)."""
    cells, rows = results.of_probe(probe), []
    names = metric_names(cells)
    for given, title in PRIVILEGES.items():
        mine = [cell for cell in cells if cell.given_boundaries == given]
        if mine:
            rows.append([f"*{title}*", *[""] * len(names)])
        for cell in mine:
            values = [score_text(results, cell, name) for name in names]
            rows.append([f"`{marked_name(cell)}`", *values])
    return markdown_table(_header(cells, names), rows)


def _header(cells: Sequence[Cell], metrics: Sequence[str]) -> list[str]:
    return [with_mark("representation", cells), *(f"`{name}`" for name in metrics)]


def score_text(results: Results, cell: Cell, metric: str, protocol: str = OFFLINE) -> str:
    """Return a score with one decimal, bold if significantly better than on raw."""
    if protocol != OFFLINE and protocol not in cell.streamed:
        return ""
    metrics = cell.metrics if protocol == OFFLINE else cell.streamed[protocol].metrics
    pair = (cell.probe, cell.representation, REFERENCE)
    gain = results.difference(*pair, protocol) or results.difference(*pair)
    sure = gain is not None and gain.intervals[metric].above_zero
    return f"**{metrics[metric]:.1f}**" if sure else f"{metrics[metric]:.1f}"


def streaming(results: Results, probe: str) -> list[str]:
    """Return the streamed tables of one probe, or a sentence where they equal the offline one."""
    parts = []
    for protocol, how in PROTOCOLS.items():
        mine = [cell for cell in results.of_probe(probe) if protocol in cell.streamed]
        if mine and all(cell.streamed[protocol].equals_offline for cell in mine):
            parts.append(text("streamed_alike", how=how))
        elif mine:
            parts += [f"Streamed, {how}:", _streamed_markdown(results, mine, protocol)]
    return ["### Streaming", *parts] if parts else []


def _streamed_markdown(results: Results, cells: list[Cell], protocol: str) -> str:
    """Return one table of streamed scores; bold: significantly better than raw (95 % interval)."""
    rows = []
    for cell in cells:
        values = [score_text(results, cell, name, protocol) for name in TRACKED]
        seen = cell.streamed[protocol].seen
        ahead = "take" if seen["representation_whole_take"] else f"{seen['lookahead_s']:.2f}"
        rows.append([f"`{marked_name(cell)}`", *values, ahead, seen["boundaries"], seen["note"]])
    sight = ["`lookahead_s`", "boundaries of steps and probe", "the features ..."]
    return markdown_table([*_header(cells, TRACKED), *sight], rows)


def fit(cells: list[Cell]) -> str:
    """Return how the probe was fitted and chosen, what it sees and how many labels it had."""
    choices = [CHOSEN[name] for name in dict.fromkeys(cell.selection for cell in cells)]
    return text("fit", first=cells[0], choices=choices, runs=max(cell.runs for cell in cells))


def conditions(results: Results) -> str:
    """Return what was scored, how, and what intervals and bold mean."""
    first = results.cells[0]
    groups = first.statistics.groups
    return text(
        "conditions",
        cell=first,
        takes=len(groups),
        groups=len(set(groups.values())),
        fewest=FEWEST,
        pooled=convention_named(first.convention).pooled,
        legend=LEGEND,
    )


def differences(results: Results, probe: str) -> tuple[str, str]:
    """Return differences of acc and its voted form: the named comparisons and everything
    against raw, then all others, each pair once. Empty without any.
    """
    mine = [d for d in results.differences if d.probe == probe and d.protocol == OFFLINE]
    order = [*COMPARISONS, *((d.first, d.second) for d in mine)]
    once: dict[tuple[str, str], Difference] = {}
    for difference in sorted(mine, key=lambda d: order.index((d.first, d.second))):
        if (difference.second, difference.first) not in once:
            once[difference.first, difference.second] = difference
    main = [d for pair, d in once.items() if pair in COMPARISONS or d.second == REFERENCE]
    others = [d for d in once.values() if d not in main]
    corner = with_mark("difference", results.of_probe(probe))
    return _differences_markdown(corner, main), _differences_markdown(corner, others)


def _differences_markdown(corner: str, differences: Sequence[Difference]) -> str:
    rows = []
    for difference in differences:
        acc, vote = difference.intervals["acc"], difference.intervals["acc_vote"]
        sure = "yes" if acc.excludes_zero else "no"
        rows.append([f"`{difference.first}` - `{difference.second}`", f"{acc.mean:+.1f}"])
        rows[-1] += [span(acc), sure, f"{vote.mean:+.1f}", span(vote)]
    header = [corner, "`acc`", "95 %", "excludes 0", "`acc_vote`", "95 %"]
    return markdown_table(header, rows) if rows else ""


def proof(results: Results, demo: DemoNumbers) -> str:
    """Return the demo's ceilings and the lines of its proof as a list."""
    lines = [
        f"- ceilings of `acc`: appearance {demo.appearance:.1f} %, history {demo.history:.1f} % "
        f"(order: {escaped(demo.order)})"
    ]
    lines += [f"- {escaped(claim_line(claim))}" for claim in proof_claims(results, demo)]
    return "\n".join(lines)


# What each representation was given, the paper's own fit, warnings.


def background(results: Results, probe: str) -> list[str]:
    """Return what a probe's representations were given, the paper's own fit, and warnings."""
    cells = results.of_probe(probe)
    parts = ["### What each representation was given", given(cells)]
    if cells[0].paper:
        names = metric_names(cells)
        rows = [
            [
                f"`{marked_name(cell)}`",
                *(f"{cell.paper[name]:.1f}" for name in names),
                f"{cell.metrics['acc'] - cell.paper['acc']:+.1f}",
            ]
            for cell in by_privilege(cells)
        ]
        parts += [
            "### The supplement's 30-epoch fit",
            "The paper's recipe, which stops early on small data. Compare with care.",
            markdown_table([*_header(cells, names), "converged `acc` - paper `acc`"], rows),
        ]
    warnings = [(cell.representation, text) for cell in cells for text in cell.warnings]
    if warnings:
        parts.append("### Warnings")
        parts.append("\n".join(f"- `{name}`: {escaped(text)}" for name, text in warnings))
    return parts


def given(cells: Sequence[Cell]) -> str:
    """Return what each representation of one probe was given: boundaries, labels, sight."""
    rows = []
    for cell in by_privilege(cells):
        p = cell.provenance
        used = []
        if p.train_labels:
            blind = f" ({p.label_folds} folds: train tokens are blind to their own)"
            used.append("train" + (blind if p.label_folds else ""))
        if p.selection_labels != "none":
            used.append(f"selection on {p.selection_labels}")
        rows.append([f"`{marked_name(cell)}`", PRIVILEGES[cell.given_boundaries]])
        rows[-1] += [f"{p.boundaries_train} / {p.boundaries_test}", ", ".join(used) or "none"]
        rows[-1].append("rest of the take" if p.whole_take else f"{p.lookahead_s:g}")
    header = [*_header(cells, ()), "privilege", "boundaries train / test", "labels used upstream"]
    return markdown_table([*header, "`lookahead_s`"], rows)


# The analyses: tables beside the paper's, and how to read them.

# A column, and the paper's medians over EgoProceL validation videos, I3D: raw, P-JEPA (supplement).
Diagnostics = Mapping[str, tuple[str, float, float]]
TRAJECTORIES: Diagnostics = {
    "straightness": ("straightness ↑", 0.0589, 0.0839),
    "spearman": ("time-progress Spearman ↑", 0.6078, 0.9351),
    "efficiency": ("progress efficiency ↑", 0.3512, 0.7685),
    "monotonic": ("monotonic fraction ↑", 0.5870, 0.7059),
    "temporal_neighbor": ("adjacent temporal NN ↑", 0.4737, 0.8000),
    "adjacent_cosine": ("adjacent cosine distance ↓", 0.0339, 0.3376),
    "displacement": ("start-end displacement ↑", 0.2632, 1.1355),
}
MAP_PATHS: Diagnostics = {
    "straightness": ("straightness ↑", 0.0282, 0.2141),
    "median_step": ("median step ↓", 1.2410, 0.5858),
    "step_90": ("90th-percentile step ↓", 5.4648, 3.1594),
    "longest_step": ("longest step ↓", 7.7705, 10.0568),
    "length": ("path length ↓", 37.5821, 33.3859),
    "displacement": ("start-end displacement ↑", 1.3174, 6.2600),
}
OTHER_DATA = "paper, other data (EgoProceL, I3D)"


def diagnostics(rows: Mapping[str, Medians], columns: Diagnostics) -> str:
    """Return one row per representation with intervals, then the paper's (other data)."""
    titles, *paper = zip(*columns.values(), strict=True)
    table = [
        [f"`{name}`", *(with_span(medians[column], ".3f") for column in columns)]
        for name, medians in rows.items()
    ]
    table.append([f"*{OTHER_DATA}*", *[""] * len(columns)])
    for name, values in zip(("raw", "P-JEPA"), paper, strict=True):
        table.append([name, *(f"{value:.3f}" for value in values)])
    return markdown_table(["representation", *titles], table)


def class_gains(gains: Sequence[ClassGain], names: Sequence[str], classes: Classes) -> str:
    """Return every class: share of its frames that are right, before and after."""
    rows = [
        [
            escaped(classes.numbered(row.label)),
            f"{row.frames:.0f}",
            f"{row.before:.1f}",
            f"{row.after:.1f}",
            bold_if_sure(row.gain),
        ]
        for row in gains
    ]
    return markdown_table(
        ["class", "tokens", *(escaped(name) for name in names), "difference (95 %)"], rows
    )


def lengths(bins: Mapping[str, Sequence[LengthBin]]) -> str:
    """Return F1@50 by segment length: one row per bin."""
    rows = [
        [length_name(same[0]), str(same[0].true), *(f"{row.f1:.1f}" for row in same)]
        for same in zip(*bins.values(), strict=True)
    ]
    return markdown_table(
        ["segments that last", "true segments", *(escaped(name) for name in bins)], rows
    )
