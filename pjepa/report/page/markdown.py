"""The report as Markdown: tables grouped by what a representation was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pjepa.metrics.bootstrap import FEWEST
from pjepa.metrics.segmentation import convention_named
from pjepa.report.numbers.headline import about_markdown, headline
from pjepa.report.numbers.marks import CHOSEN, LEGEND, marked_name, with_mark
from pjepa.report.numbers.proof import DemoNumbers, proof_claims
from pjepa.report.numbers.results import COMPARISONS, OFFLINE, REFERENCE, Cell, Difference, Results
from pjepa.report.numbers.streaming import overview_markdown, score_text, streaming_parts
from pjepa.report.numbers.tables import by_privilege, claim_line, interval_span, metric_names
from pjepa.report.numbers.text import escaped, markdown_table
from pjepa.streams.schema import Provenance

PRIVILEGES = {True: "with annotated boundaries", False: "without annotated boundaries"}


def report_markdown(
    results: Results,
    demo: DemoNumbers | None,
    pictures: Mapping[str, str],
    analyses: Sequence[str] = (),
) -> str:
    """Return the report as Markdown.

    `pictures` maps file names to captions, `analyses` are Markdown.
    """
    parts = ["# Results", headline(results)] if headline(results) else ["# Results"]
    if len(results.probes) > 1:
        parts += ["## All probes, `acc`", overview_markdown(results)]
    for probe in results.probes:
        parts.append(f"## Probe {escaped(probe)}")
        parts += score_parts(results, probe)
        if others := other_differences(results, probe):
            parts += ["All other differences:", others]
        parts += ["### What each representation is", about_markdown(results.of_probe(probe))]
        parts += background_parts(results, probe)
    if demo is not None:
        parts += ["## The demo's proof", proof_markdown(results, demo)]
    parts += ["## How to read the numbers", conditions(results), *analyses]
    if pictures:
        parts.append("## Pictures")
        parts += [f"![{escaped(caption)}]({name})" for name, caption in pictures.items()]
    return "\n\n".join(parts) + "\n"


def score_parts(results: Results, probe: str) -> list[str]:
    """Return how one probe was fitted, its scores, streamed too, and the main differences."""
    parts = [headline_markdown(results, probe), _probe_conditions(results.of_probe(probe))]
    parts += streaming_parts(results, probe)
    main, _ = _differences(results, probe)
    none = f"None: `{REFERENCE}` is not among the cells."
    return [*parts, "### Differences", _differences_markdown(results, probe, main) or none]


def other_differences(results: Results, probe: str) -> str:
    """Return the differences that `score_parts` leaves out, as a table; empty without any."""
    return _differences_markdown(results, probe, _differences(results, probe)[1])


def background_parts(results: Results, probe: str) -> list[str]:
    """Return what a probe's representations were given, the paper's own fit, and warnings."""
    cells = results.of_probe(probe)
    parts = ["### What each representation was given", given_markdown(cells)]
    if cells[0].paper:
        parts += [
            "### The supplement's 30-epoch fit",
            "The paper's recipe, which stops early on small data. Compare with care.",
            _fit_table(results, probe),
        ]
    warnings = [(cell.representation, text) for cell in cells for text in cell.warnings]
    if warnings:
        parts.append("### Warnings")
        parts.append("\n".join(f"- `{name}`: {escaped(text)}" for name, text in warnings))
    return parts


def headline_markdown(results: Results, probe: str) -> str:
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
    corner = with_mark("representation", cells)
    return markdown_table([corner, *(f"`{name}`" for name in names)], rows)


def conditions(results: Results) -> str:
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
        "it were given them), `macro_f1` is the mean over classes, `top1` classifies whole "
        "segments by the mean of their predictions. "
        f"{_noise(len(set(groups.values())))} {LEGEND}."
    )


def _noise(groups: int) -> str:
    """Return what intervals and bold mean with so many groups."""
    if groups < FEWEST:
        return (
            f"{groups} groups are too few for intervals (at least {FEWEST}): none is given, and "
            "nothing is bold."
        )
    return (
        f"Intervals are 95 %, from a paired bootstrap over the {groups} groups; variants and seeds "
        f"are averaged in each resample. **Bold**: better than the same probe on `{REFERENCE}`, "
        "and the interval of the difference excludes 0."
    )


def _probe_conditions(cells: list[Cell]) -> str:
    """Return how the probe was fitted and chosen, what it sees and how many labels it had."""
    first = cells[0]
    chosen = ", ".join(CHOSEN[name] for name in dict.fromkeys(c.selection for c in cells))
    how = "Fitted to convergence" if first.paper else "Trained"
    sentences = [f"{how}; choices made on {chosen}.", _sight_sentence(first)]
    if first.runs > 1 or cells[-1].runs > 1:
        sentences.append(f"Means over up to {max(cell.runs for cell in cells)} runs.")
    labels = first.labels
    if labels["label_fraction"] < 1:
        sentences.append(
            f"Labels of {labels['takes']} of {labels['of']} train takes ({labels['variant']} "
            f"variant: {labels['why']})."
        )
    return " ".join(sentences)


def _sight_sentence(cell: Cell) -> str:
    """Return how far ahead a prediction of the probe itself depends on tokens."""
    sight = cell.sight
    if sight["whole_take"]:
        return "A prediction depends on the whole take."
    if sight["to"] == "token":
        return "A prediction depends on no later token."
    told = ", which it is told" if sight["to"] == "segment" else ""
    ahead = f"{sight['lookahead_s']:g} s ahead"
    return f"A prediction depends on tokens up to {ahead}, to the end of its {sight['to']}{told}."


def _differences(results: Results, probe: str) -> tuple[list[Difference], list[Difference]]:
    """Return the named comparisons and what is learned against raw.

    Then all others, each pair once.
    """
    mine = [d for d in results.differences if d.probe == probe and d.protocol == OFFLINE]
    main: list[Difference] = []
    others: list[Difference] = []
    for difference in sorted(mine, key=_rank):
        pair = (difference.first, difference.second)
        if not any((d.second, d.first) == pair for d in (*main, *others)):
            named = pair in COMPARISONS or pair[1] == REFERENCE
            (main if named else others).append(difference)
    return main, others


def _differences_markdown(results: Results, probe: str, shown: Sequence[Difference]) -> str:
    """Return a table of differences of acc and its voted form; empty without any."""
    rows = []
    for difference in shown:
        acc, vote = difference.intervals["acc"], difference.intervals["acc_vote"]
        sure = "yes" if acc.excludes_zero else "no"
        rows.append([f"`{difference.first}` - `{difference.second}`", f"{acc.mean:+.1f}"])
        rows[-1] += [interval_span(acc), sure, f"{vote.mean:+.1f}", interval_span(vote)]
    corner = with_mark("difference", results.of_probe(probe))
    header = [corner, "`acc`", "95 %", "excludes 0", "`acc_vote`", "95 %"]
    return markdown_table(header, rows) if rows else ""


def _rank(difference: Difference) -> int:
    pair = (difference.first, difference.second)
    return COMPARISONS.index(pair) if pair in COMPARISONS else len(COMPARISONS)


def given_markdown(cells: Sequence[Cell]) -> str:
    """Return what each representation of one probe was given: boundaries, labels, sight."""
    rows = []
    for cell in by_privilege(cells):
        p = cell.provenance
        rows.append([f"`{marked_name(cell)}`", PRIVILEGES[cell.given_boundaries]])
        rows[-1] += [f"{p.boundaries_train} / {p.boundaries_test}", _labels_used(p), _lookahead(p)]
    corner = with_mark("representation", cells)
    header = [corner, "privilege", "boundaries train / test", "labels used upstream"]
    return markdown_table([*header, "`lookahead_s`"], rows)


def _labels_used(provenance: Provenance) -> str:
    used = []
    if provenance.train_labels:
        blind = f" ({provenance.label_folds} folds: train tokens are blind to their own)"
        used.append("train" + (blind if provenance.label_folds else ""))
    if provenance.selection_labels != "none":
        used.append(f"selection on {provenance.selection_labels}")
    return ", ".join(used) or "none"


def _lookahead(provenance: Provenance) -> str:
    return "rest of the take" if provenance.whole_take else f"{provenance.lookahead_s:g}"


def _fit_table(results: Results, probe: str) -> str:
    cells = results.of_probe(probe)
    names = metric_names(cells)
    rows = [
        [f"`{marked_name(c)}`", *(f"{c.paper[name]:.1f}" for name in names), _fit_gap(c)]
        for c in by_privilege(cells)
    ]
    header = [with_mark("representation", cells), *(f"`{name}`" for name in names)]
    return markdown_table([*header, "converged `acc` - paper `acc`"], rows)


def _fit_gap(cell: Cell) -> str:
    return f"{cell.metrics['acc'] - cell.paper['acc']:+.1f}"


def proof_markdown(results: Results, demo: DemoNumbers) -> str:
    lines = [
        f"- ceilings of `acc`: appearance {demo.appearance:.1f} %, history {demo.history:.1f} % "
        f"(order: {escaped(demo.order)})"
    ]
    lines += [f"- {escaped(claim_line(claim))}" for claim in proof_claims(results, demo)]
    return "\n".join(lines)
