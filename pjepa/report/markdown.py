"""The report as Markdown: tables grouped by what a representation was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pjepa.core.tables import Classes
from pjepa.core.text import escaped, markdown_table
from pjepa.metrics.bootstrap import FEWEST, Interval
from pjepa.metrics.lengths import LengthBin
from pjepa.metrics.segmentation import convention_named
from pjepa.report.analyses import (
    ENOUGH,
    PAPER_PATHS,
    PAPER_TRAJECTORIES,
    SHOWN,
    ZOOM_POINTS,
    ClassPair,
    Maps,
    Medians,
    Zoom,
)
from pjepa.report.gains import ClassGain, DemoNumbers, proof_claims
from pjepa.report.results import COMPARISONS, OFFLINE, REFERENCE, Cell, Difference, Results
from pjepa.report.tables import (
    CHOSEN,
    LEGEND,
    by_privilege,
    claim_line,
    few_groups,
    interval_span,
    marked_name,
    metric_names,
    signed,
    with_mark,
)
from pjepa.streams.provenance import Provenance

# The analyses as Markdown: tables beside the paper's, and how to read them.

DIAGNOSTICS = {
    "straightness": "straightness ↑",
    "spearman": "time-progress Spearman ↑",
    "efficiency": "progress efficiency ↑",
    "monotonic": "monotonic fraction ↑",
    "temporal_neighbor": "adjacent temporal NN ↑",
    "adjacent_cosine": "adjacent cosine distance ↓",
    "displacement": "start-end displacement ↑",
}
PATHS = {
    "straightness": "straightness ↑",
    "median_step": "median step ↓",
    "step_90": "90th-percentile step ↓",
    "longest_step": "longest step ↓",
    "length": "path length ↓",
    "displacement": "start-end displacement ↑",
}
OTHER_DATA = "paper, other data (EgoProceL, I3D)"


def trajectory_markdown(trajectories: Mapping[str, Medians], takes: int) -> list[str]:
    """Return the feature-space table, the paper's two rows below, and how to read it."""
    return [
        diagnostics_markdown(trajectories, DIAGNOSTICS, PAPER_TRAJECTORIES),
        f"Medians over {takes} takes with 95 % intervals from a bootstrap over groups. A take is "
        "its segments in order, each its mean feature, L2-normalised; progress is the place along "
        "the take's own line from first to last segment. Progress efficiency is net progress over "
        "total variation, `|p_T - p_1| / sum |p_(t+1) - p_t|`: 1 if the path never turns back. "
        "These numbers describe the features; they are not task performance. Arrows are the "
        "paper's reading.",
    ]


def paths_markdown(maps: Maps) -> list[str]:
    """Return the table of paths on the maps, and what the maps show."""
    shown = f"all {maps.of} takes"
    if len(maps.takes) < maps.of:
        shown = f"{len(maps.takes)} of {maps.of} takes, drawn at random (`report.map_points`)"
    return [
        diagnostics_markdown(maps.paths, PATHS, PAPER_PATHS),
        f"t-SNE of segment features ({len(maps.take)} segments, {shown}). The table measures the "
        "takes' paths on the map. t-SNE keeps neighbourhoods, not distances: it describes the "
        "picture only.",
    ]


def diagnostics_markdown(
    rows: Mapping[str, Medians],
    columns: Mapping[str, str],
    paper: Mapping[str, tuple[float, float]],
) -> str:
    """Return one row per representation with intervals, then the paper's (other data)."""
    table = [
        [f"`{name}`", *(_median(medians[column]) for column in columns)]
        for name, medians in rows.items()
    ]
    table.append([f"*{OTHER_DATA}*", *[""] * len(columns)])
    for place, name in enumerate(("raw", "P-JEPA")):
        table.append([name, *(f"{paper[column][place]:.3f}" for column in columns)])
    return markdown_table(["representation", *columns.values()], table)


def zoom_markdown(zoom: Zoom, classes: Classes, probe: str) -> list[str]:
    """Return which pair was chosen, by which rule, and the pair that lost."""
    first, second = (_name(label, classes) for label in (zoom.pair.first, zoom.pair.second))
    apart = ", ".join(f"{value:.2f} `{name}`" for name, value in zoom.silhouette.items())
    text = (
        f"**{first}** and **{second}**: a {escaped(probe)} probe takes one for the other in "
        f"{zoom.pair.before:.0f} % of their tokens on `raw` and in {zoom.pair.after:.0f} % on "
        f"`pjepa`. "
    )
    if zoom.pair.gain > 0:
        text += (
            "Of all pairs this one fell most: it is chosen to show what context can do, not what "
            "is typical. "
        )
    else:
        text += (
            "**No pair is confused less on `pjepa` than on `raw`**; this is the one `raw` confuses "
            "most. "
        )
    text += _worst_sentence(zoom.worst, classes)
    rule = (
        f"The maps are t-SNE of up to {ZOOM_POINTS} tokens of the two classes (classes with fewer "
        f"than {ENOUGH} tokens are not considered). Mean silhouette of the two in feature space "
        f"(cosine; 1: apart, 0: mixed): {apart}. Below: the take with most of the rarer one."
    )
    return [text, rule]


def _worst_sentence(worst: ClassPair, classes: Classes) -> str:
    if worst.gain >= 0:
        return "No pair is confused more on `pjepa`."
    first, second = (_name(label, classes) for label in (worst.first, worst.second))
    return (
        f"The pair that got worst is {first} and {second}: {worst.before:.0f} % on `raw`, "
        f"{worst.after:.0f} % on `pjepa`."
    )


def class_gains_markdown(gains: Sequence[ClassGain], classes: Classes) -> str:
    """Return every class: share of its frames that are right, before and after."""
    rows = [
        [
            _name(row.label, classes),
            f"{row.frames:.0f}",
            f"{row.before:.1f}",
            f"{row.after:.1f}",
            signed(row.gain),
        ]
        for row in gains
    ]
    columns = [escaped(name) for name in SHOWN]
    return markdown_table(["class", "tokens", *columns, "difference (95 %)"], rows)


def lengths_markdown(bins: Mapping[str, Sequence[LengthBin]]) -> str:
    """Return F1@50 by segment length: one row per bin."""
    first = next(iter(bins.values()))
    rows = []
    for place, row in enumerate(first):
        values = [f"{found[place].f1:.1f}" for found in bins.values()]
        rows.append([length_name(row), str(row.true), *values])
    columns = [escaped(name) for name in bins]
    return markdown_table(["segments that last", "true segments", *columns], rows)


def length_name(row: LengthBin) -> str:
    """Return a bin of lengths in words."""
    if row.high_s == float("inf"):
        return f"{row.low_s:g} s or longer" if row.low_s else "any length"
    return f"{row.low_s:g} to {row.high_s:g} s"


def _median(value: Interval | None) -> str:
    if value is None:
        return "undefined"
    span = f"{value.low:.3f}–{value.high:.3f}" if value.holds else few_groups(value)
    return f"{value.mean:.3f} ({span})"


def _name(label: int, classes: Classes) -> str:
    return escaped(classes.numbered(label))


# The finding of a run in one sentence, and one line that explains each representation.

LEARNED = "pjepa"
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
        before, after = (results.cell(probe, name) for name in (REFERENCE, LEARNED))
        gain = results.difference(probe, LEARNED, REFERENCE)
        if before and after and gain:
            score = f"{after.metrics['acc']:.1f} % of the action tokens"
            text = f"A {escaped(probe)} probe names the right step for **{score}** on P-JEPA "
            text += f"features: **{_points(gain.intervals['acc'])}** against raw features"
            return f"{text}{_control(results, probe)}.{_privilege(before, after)}"
    return ""


def about_markdown(cells: list[Cell]) -> str:
    """Return one line for each representation of one probe, in the order of the chart."""
    rows = [[f"`{marked_name(c)}`", ABOUT[c.representation]] for c in by_privilege(cells)]
    return markdown_table(["representation", "what it is"], rows)


def _points(gain: Interval) -> str:
    span = (
        f"95\N{NO-BREAK SPACE}% interval {interval_span(gain)}"
        if gain.holds
        else interval_span(gain)
    )
    unclear = ", no clear difference" if gain.holds and not gain.excludes_zero else ""
    return f"{gain.mean:+.1f} points ({span}{unclear})"


def _control(results: Results, probe: str) -> str:
    """Return the comparison with the control that scores best; empty without controls."""
    controls = [c for c in results.of_probe(probe) if c.representation in CONTROLS]
    if not controls:
        return ""
    best = max(controls, key=lambda cell: cell.metrics["acc"])
    name = f"`{best.representation}`, the best control"
    gain = results.difference(probe, LEARNED, best.representation)
    if gain is None:
        return f"; {name}, reaches {best.metrics['acc']:.1f} %"
    return f", and {_points(gain.intervals['acc'])} against {name}"


def _privilege(before: Cell, after: Cell) -> str:
    if after.given_boundaries and not before.given_boundaries:
        return " P-JEPA was given the annotated boundaries of the steps, raw features were not."
    return ""


# Streamed scores (the future hidden) and the overview of all probes, as Markdown.

PROTOCOLS = {
    "segments": "one annotated segment at a time (paper Table 3)",
    "seconds": "fixed seconds at a time (the steps need no boundaries)",
}
STREAMED = ("acc", "acc_bg", "edit", "f1_10", "f1_25", "f1_50")


def streaming_parts(results: Results, probe: str) -> list[str]:
    """Return the streamed tables of one probe, or a sentence where they equal the offline one."""
    cells = results.of_probe(probe)
    parts = []
    for protocol, how in PROTOCOLS.items():
        mine = [cell for cell in cells if protocol in cell.streamed]
        if not mine:
            continue
        if all(cell.streamed[protocol].equals_offline for cell in mine):
            parts.append(
                f"Streamed, {how}: the same as the offline scores. A prediction of this probe "
                "never depends on later tokens than it is given."
            )
        else:
            parts += [f"Streamed, {how}:", streamed_markdown(results, mine, protocol)]
    return ["### Streaming", *parts] if parts else []


def streamed_markdown(results: Results, cells: list[Cell], protocol: str) -> str:
    """Return one table of streamed scores; bold: significantly better than raw (95 % interval)."""
    rows = []
    for cell in cells:
        values = [score_text(results, cell, name, protocol) for name in STREAMED]
        seen = cell.streamed[protocol].seen
        ahead = "take" if seen["representation_whole_take"] else f"{seen['lookahead_s']:.2f}"
        rows.append([f"`{marked_name(cell)}`", *values, ahead, seen["boundaries"], seen["note"]])
    corner = with_mark("representation", cells)
    names = [f"`{name}`" for name in STREAMED]
    told = ["`lookahead_s`", "boundaries of steps and probe", "the features ..."]
    return markdown_table([corner, *names, *told], rows)


def overview_markdown(results: Results) -> str:
    """Return `acc` of every probe on every representation, offline and streamed."""
    names = list(dict.fromkeys(cell.representation for cell in results.cells))
    rows = []
    for probe in results.probes:
        cells = {cell.representation: cell for cell in results.of_probe(probe)}
        marked = with_mark(probe, list(cells.values()))
        for protocol in (OFFLINE, *PROTOCOLS):
            mine = [c for c in cells.values() if protocol == OFFLINE or protocol in c.streamed]
            if mine:
                values = [score_text(results, cells[name], "acc", protocol) for name in names]
                rows.append([marked, protocol, *values])
    heads = {cell.representation: f"`{marked_name(cell)}`" for cell in results.cells}
    return markdown_table(["probe", "context", *(heads[name] for name in names)], rows)


def score_text(results: Results, cell: Cell, metric: str, protocol: str = OFFLINE) -> str:
    """Return a score with one decimal, bold if significantly better than on raw."""
    if protocol != OFFLINE and protocol not in cell.streamed:
        return ""
    metrics = cell.metrics if protocol == OFFLINE else cell.streamed[protocol].metrics
    if metric not in metrics:
        return ""
    pair = (cell.probe, cell.representation, REFERENCE)
    gain = results.difference(*pair, protocol) or results.difference(*pair)
    sure = gain is not None and gain.intervals[metric].above_zero
    return f"**{metrics[metric]:.1f}**" if sure else f"{metrics[metric]:.1f}"


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
