"""The report to read: Markdown tables, grouped by what a representation was given."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pjepa.metrics.segmentation import METRICS, convention_named
from pjepa.report.proof import DemoNumbers, proof_claims
from pjepa.report.results import COMPARISONS, REFERENCE, Cell, Difference, Results
from pjepa.report.tables import by_privilege, claim_line, interval_span
from pjepa.streams.schema import Provenance

PRIVILEGES = {True: "with annotated boundaries", False: "without annotated boundaries"}


def report_markdown(results: Results, demo: DemoNumbers | None, pictures: Mapping[str, str]) -> str:
    """The report to read; `pictures` maps file names to captions."""
    parts = ["# Results", _conditions(results)]
    for probe in results.probes:
        parts += [f"## Probe {escaped(probe)}", headline_markdown(results, probe)]
        parts += ["### Differences", _differences_markdown(results, probe)]
        parts += ["### What each representation was given", _provenance_markdown(results, probe)]
        parts += [
            "### The supplement's 30-epoch fit",
            "The paper's recipe, which stops early on small data. Compare with care.",
            _fit_table(results, probe),
        ]
        warnings = [(c.representation, w) for c in results.of_probe(probe) for w in c.warnings]
        if warnings:
            parts.append("### Warnings")
            parts.append("\n".join(f"- `{name}`: {escaped(text)}" for name, text in warnings))
    if demo is not None:
        parts += ["## The demo's proof", _proof_markdown(results, demo)]
    if pictures:
        parts.append("## Pictures")
        parts += [f"![{escaped(caption)}]({name})" for name, caption in pictures.items()]
    return "\n\n".join(parts) + "\n"


def headline_markdown(results: Results, probe: str) -> str:
    """The headline table; bold: better than raw, and the 95 % interval says so."""
    rows: list[list[str]] = []
    for given, title in PRIVILEGES.items():
        mine = [c for c in results.of_probe(probe) if c.given_boundaries == given]
        if mine:
            rows.append([f"*{title}*", *[""] * len(METRICS)])
            rows += [[f"`{c.representation}`", *_bold_cells(results, c)] for c in mine]
    return markdown_table(["representation", *(f"`{name}`" for name in METRICS)], rows)


def escaped(text: str) -> str:
    """Text from data as literal Markdown, on one line, safe inside a table."""
    return re.sub(r"([\\`*_\[\]<>|#!~&$])", r"\\\1", " ".join(text.split()))


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns after the first are right-aligned; cells are Markdown."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, rule, *rows])


def _conditions(results: Results) -> str:
    first = results.cells[0]
    groups = first.statistics.groups
    rules = convention_named(first.convention)
    how = (
        "accuracy and F1 are pooled over takes and Edit is a mean over takes"
        if rules.pooled
        else "every score is a mean over takes"
    )
    return (
        f"Percent on the `{first.split}` split: {len(groups)} takes in "
        f"{len(set(groups.values()))} groups. Metric convention `{first.convention}`: {how}; "
        "`acc` leaves background out, `acc_bg` counts it, `acc_vote` is `acc` after a majority "
        "vote inside the true segments (what a representation without boundaries would score if "
        "it were given them). Probes are fitted to convergence. Intervals are 95 %, from a paired "
        f"bootstrap over groups. **Bold**: better than `{REFERENCE}`, and the interval of the "
        "difference excludes 0."
    )


def _bold_cells(results: Results, cell: Cell) -> list[str]:
    """The metrics of one row, bold where the gain over raw is sure."""
    gain = results.difference(cell.probe, cell.representation, REFERENCE)
    better = {name for name in METRICS if gain is not None and gain.intervals[name].low > 0}
    texts = {name: f"{cell.metrics[name]:.1f}" for name in METRICS}
    return [f"**{texts[name]}**" if name in better else texts[name] for name in METRICS]


def _differences_markdown(results: Results, probe: str) -> str:
    """Comparisons first, then everything else against raw; acc and its voted form."""
    mine = [d for d in results.differences if d.probe == probe]
    mine.sort(key=_rank)
    rows = []
    for difference in mine:
        acc, vote = difference.intervals["acc"], difference.intervals["acc_vote"]
        sure = "yes" if acc.excludes_zero else "no"
        rows.append([f"`{difference.first}` - `{difference.second}`", f"{acc.mean:+.1f}"])
        rows[-1] += [interval_span(acc), sure, f"{vote.mean:+.1f}", interval_span(vote)]
    header = ["difference", "`acc`", "95 %", "excludes 0", "`acc_vote`", "95 %"]
    return markdown_table(header, rows) if rows else f"None: `{REFERENCE}` is not among the cells."


def _rank(difference: Difference) -> int:
    pair = (difference.first, difference.second)
    return COMPARISONS.index(pair) if pair in COMPARISONS else len(COMPARISONS)


def _provenance_markdown(results: Results, probe: str) -> str:
    rows = []
    for cell in by_privilege(results.of_probe(probe)):
        p = cell.provenance
        rows.append([f"`{cell.representation}`", PRIVILEGES[cell.given_boundaries]])
        rows[-1] += [f"{p.boundaries_train} / {p.boundaries_test}", _labels_used(p), _lookahead(p)]
    header = ["representation", "privilege", "boundaries train / test", "labels used upstream"]
    return markdown_table([*header, "`lookahead_s`"], rows)


def _labels_used(provenance: Provenance) -> str:
    used = ["train"] if provenance.train_labels else []
    if provenance.selection_labels != "none":
        used.append(f"selection on {provenance.selection_labels}")
    return ", ".join(used) or "none"


def _lookahead(provenance: Provenance) -> str:
    return "rest of the take" if provenance.whole_take else f"{provenance.lookahead_s:g}"


def _fit_table(results: Results, probe: str) -> str:
    rows = [
        [f"`{c.representation}`", *(f"{c.paper[name]:.1f}" for name in METRICS), _fit_gap(c)]
        for c in by_privilege(results.of_probe(probe))
    ]
    header = ["representation", *(f"`{name}`" for name in METRICS)]
    return markdown_table([*header, "converged `acc` - paper `acc`"], rows)


def _fit_gap(cell: Cell) -> str:
    return f"{cell.metrics['acc'] - cell.paper['acc']:+.1f}"


def _proof_markdown(results: Results, demo: DemoNumbers) -> str:
    lines = [
        f"- ceilings of `acc`: appearance {demo.appearance:.1f} %, history {demo.history:.1f} % "
        f"(order: {escaped(demo.order)})"
    ]
    lines += [f"- {escaped(claim_line(claim))}" for claim in proof_claims(results, demo)]
    return "\n".join(lines)
