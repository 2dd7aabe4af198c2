"""The texts and tables of the report as Markdown, grouped by what a representation was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pjepa.core.tables import Classes
from pjepa.core.text import escaped, markdown_table
from pjepa.metrics.bootstrap import FEWEST, Interval
from pjepa.metrics.lengths import LengthBin
from pjepa.metrics.segmentation import convention_named
from pjepa.report.analyses import (
    ENOUGH,
    LEARNED,
    PAIR_POINTS,
    PAPER_PATHS,
    PAPER_TRAJECTORIES,
    SHOWN,
    Maps,
    Medians,
    PairView,
)
from pjepa.report.gains import ClassGain, DemoNumbers, proof_claims
from pjepa.report.results import COMPARISONS, OFFLINE, REFERENCE, Cell, Difference, Results
from pjepa.report.tables import (
    LEGEND,
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
            score = f"{after.metrics['acc']:.1f} % of the action tokens"
            text = (
                f"A {escaped(probe)} probe names the right step for **{score}** on P-JEPA "
                f"features: **{_points(gain.intervals['acc'])}** against raw features"
                f"{_best_control(results, probe)}."
            )
            if after.given_boundaries and not before.given_boundaries:
                text += (
                    " P-JEPA was given the annotated boundaries of the steps, raw features were "
                    "not."
                )
            return text
    return ""


def _best_control(results: Results, probe: str) -> str:
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


def _points(gain: Interval) -> str:
    what = "95\N{NO-BREAK SPACE}% interval " if gain.holds else ""
    unclear = ", no clear difference" if gain.holds and not gain.excludes_zero else ""
    return f"{gain.mean:+.1f} points ({what}{span(gain)}{unclear})"


def about_markdown(cells: list[Cell]) -> str:
    """Return one line for each representation of one probe, in the order of the chart."""
    rows = [[f"`{marked_name(c)}`", ABOUT[c.representation]] for c in by_privilege(cells)]
    return markdown_table(["representation", "what it is"], rows)


# Scores: offline, streamed (the future hidden), and what they mean.

PRIVILEGES = {True: "with annotated boundaries", False: "without annotated boundaries"}
PROTOCOLS = {
    "segments": "one annotated segment at a time (paper Table 3)",
    "seconds": "fixed seconds at a time (the steps need no boundaries)",
}
STREAMED = ("acc", "acc_bg", "edit", "f1_10", "f1_25", "f1_50")
CHOSEN = {
    "holdout": "the held-out part of train",
    "val": "val, a published habit",
    "test": "test, a published habit",
    "last": "nothing: the last epoch is kept",
}


def overview_markdown(results: Results) -> str:
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


def scores_markdown(results: Results, probe: str) -> str:
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
    if metric not in metrics:
        return ""
    pair = (cell.probe, cell.representation, REFERENCE)
    gain = results.difference(*pair, protocol) or results.difference(*pair)
    sure = gain is not None and gain.intervals[metric].above_zero
    return f"**{metrics[metric]:.1f}**" if sure else f"{metrics[metric]:.1f}"


def streaming_parts(results: Results, probe: str) -> list[str]:
    """Return the streamed tables of one probe, or a sentence where they equal the offline one."""
    parts = []
    for protocol, how in PROTOCOLS.items():
        mine = [cell for cell in results.of_probe(probe) if protocol in cell.streamed]
        if mine and all(cell.streamed[protocol].equals_offline for cell in mine):
            parts.append(
                f"Streamed, {how}: the same as the offline scores. A prediction of this probe "
                "never depends on later tokens than it is given."
            )
        elif mine:
            parts += [f"Streamed, {how}:", _streamed_markdown(results, mine, protocol)]
    return ["### Streaming", *parts] if parts else []


def _streamed_markdown(results: Results, cells: list[Cell], protocol: str) -> str:
    """Return one table of streamed scores; bold: significantly better than raw (95 % interval)."""
    rows = []
    for cell in cells:
        values = [score_text(results, cell, name, protocol) for name in STREAMED]
        seen = cell.streamed[protocol].seen
        ahead = "take" if seen["representation_whole_take"] else f"{seen['lookahead_s']:.2f}"
        rows.append([f"`{marked_name(cell)}`", *values, ahead, seen["boundaries"], seen["note"]])
    sight = ["`lookahead_s`", "boundaries of steps and probe", "the features ..."]
    return markdown_table([*_header(cells, STREAMED), *sight], rows)


def fit_sentences(cells: list[Cell]) -> str:
    """Return how the probe was fitted and chosen, what it sees and how many labels it had."""
    first, labels = cells[0], cells[0].labels
    chosen = ", ".join(CHOSEN[name] for name in dict.fromkeys(c.selection for c in cells))
    how = "Fitted to convergence" if first.paper else "Trained"
    sentences = [f"{how}; choices made on {chosen}.", _sight_sentence(first)]
    if first.runs > 1 or cells[-1].runs > 1:
        sentences.append(f"Means over up to {max(cell.runs for cell in cells)} runs.")
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
    given = ", which it is told" if sight["to"] == "segment" else ""
    ahead = f"{sight['lookahead_s']:g} s ahead"
    return f"A prediction depends on tokens up to {ahead}, to the end of its {sight['to']}{given}."


def conditions(results: Results) -> str:
    """Return what was scored, how, and what intervals and bold mean."""
    first = results.cells[0]
    groups = first.statistics.groups
    count = len(set(groups.values()))
    how = (
        "accuracy and F1 are pooled over takes and Edit is a mean over takes"
        if convention_named(first.convention).pooled
        else "every score is a mean over takes"
    )
    certainty = (
        f"{count} groups are too few for intervals (at least {FEWEST}): none is given, and "
        "nothing is bold."
        if count < FEWEST
        else f"Intervals are 95 %, from a paired bootstrap over the {count} groups; variants and "
        "seeds are averaged in each resample. **Bold**: better than the same probe on "
        f"`{REFERENCE}`, and the interval of the difference excludes 0."
    )
    return (
        f"Percent on the `{first.split}` split: {len(groups)} takes in {count} groups. Metric "
        f"convention `{first.convention}`: {how}; `acc` leaves background out, `acc_bg` counts "
        "it, `acc_vote` is `acc` after a majority vote inside the true segments (what a "
        "representation without boundaries would score if it were given them), `macro_f1` is the "
        "mean over classes, `top1` classifies whole segments by the mean of their predictions. "
        f"{certainty} {LEGEND}."
    )


def difference_tables(results: Results, probe: str) -> tuple[str, str]:
    """Return differences of acc and its voted form: the named comparisons and everything
    against raw, then all others, each pair once. Empty without any.
    """
    mine = [d for d in results.differences if d.probe == probe and d.protocol == OFFLINE]
    order = [*COMPARISONS, *((d.first, d.second) for d in mine)]
    main: list[Difference] = []
    others: list[Difference] = []
    for difference in sorted(mine, key=lambda d: order.index((d.first, d.second))):
        pair = (difference.first, difference.second)
        if not any((d.second, d.first) == pair for d in (*main, *others)):
            named = pair in COMPARISONS or pair[1] == REFERENCE
            (main if named else others).append(difference)
    corner = with_mark("difference", results.of_probe(probe))
    first, second = (_differences_markdown(corner, shown) for shown in (main, others))
    return first, second


def _differences_markdown(corner: str, differences: Sequence[Difference]) -> str:
    rows = []
    for difference in differences:
        acc, vote = difference.intervals["acc"], difference.intervals["acc_vote"]
        sure = "yes" if acc.excludes_zero else "no"
        rows.append([f"`{difference.first}` - `{difference.second}`", f"{acc.mean:+.1f}"])
        rows[-1] += [span(acc), sure, f"{vote.mean:+.1f}", span(vote)]
    header = [corner, "`acc`", "95 %", "excludes 0", "`acc_vote`", "95 %"]
    return markdown_table(header, rows) if rows else ""


def proof_markdown(results: Results, demo: DemoNumbers) -> str:
    """Return the demo's ceilings and the lines of its proof as a list."""
    lines = [
        f"- ceilings of `acc`: appearance {demo.appearance:.1f} %, history {demo.history:.1f} % "
        f"(order: {escaped(demo.order)})"
    ]
    lines += [f"- {escaped(claim_line(claim))}" for claim in proof_claims(results, demo)]
    return "\n".join(lines)


# What each representation was given, the paper's own fit, warnings.


def background_parts(results: Results, probe: str) -> list[str]:
    """Return what a probe's representations were given, the paper's own fit, and warnings."""
    cells = results.of_probe(probe)
    parts = ["### What each representation was given", given_markdown(cells)]
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


def given_markdown(cells: Sequence[Cell]) -> str:
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


def trajectory_parts(trajectories: Mapping[str, Medians], takes: int) -> list[str]:
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


def paths_parts(maps: Maps) -> list[str]:
    """Return the table of paths on the maps, and what the maps show."""
    takes = f"all {maps.of} takes"
    if len(maps.takes) < maps.of:
        takes = f"{len(maps.takes)} of {maps.of} takes, drawn at random (`report.map_points`)"
    return [
        diagnostics_markdown(maps.paths, PATHS, PAPER_PATHS),
        f"t-SNE of segment features ({len(maps.take)} segments, {takes}). The table measures the "
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
        [f"`{name}`", *(with_span(medians[column], ".3f") for column in columns)]
        for name, medians in rows.items()
    ]
    table.append([f"*{OTHER_DATA}*", *[""] * len(columns)])
    for name, values in zip(("raw", "P-JEPA"), zip(*paper.values(), strict=True), strict=True):
        table.append([name, *(f"{value:.3f}" for value in values)])
    return markdown_table(["representation", *columns.values()], table)


def pair_parts(view: PairView, classes: Classes, probe: str) -> list[str]:
    """Return which pair was chosen, by which rule, and the pair that lost."""
    pair, worst = view.pair, view.worst
    first, second = (escaped(classes.numbered(label)) for label in (pair.first, pair.second))
    text = (
        f"**{first}** and **{second}**: a {escaped(probe)} probe takes one for the other in "
        f"{pair.before:.0f} % of their tokens on `raw` and in {pair.after:.0f} % on `pjepa`. "
    )
    if pair.gain > 0:
        text += (
            "Of all pairs this one fell most: it is chosen to show what context can do, not what "
            "is typical. "
        )
    else:
        text += (
            "**No pair is confused less on `pjepa` than on `raw`**; this is the one `raw` confuses "
            "most. "
        )
    if worst.gain >= 0:
        text += "No pair is confused more on `pjepa`."
    else:
        lost = (escaped(classes.numbered(label)) for label in (worst.first, worst.second))
        text += (
            f"The pair that got worst is {' and '.join(lost)}: {worst.before:.0f} % on `raw`, "
            f"{worst.after:.0f} % on `pjepa`."
        )
    apart = ", ".join(f"{value:.2f} `{name}`" for name, value in view.silhouette.items())
    rule = (
        f"The maps are t-SNE of up to {PAIR_POINTS} tokens of the two classes (classes with fewer "
        f"than {ENOUGH} tokens are not considered). Mean silhouette of the two in feature space "
        f"(cosine; 1: apart, 0: mixed): {apart}. Below: the take with most of the rarer one."
    )
    return [text, rule]


def class_gains_markdown(gains: Sequence[ClassGain], names: Sequence[str], classes: Classes) -> str:
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


def lengths_markdown(bins: Mapping[str, Sequence[LengthBin]]) -> str:
    """Return F1@50 by segment length: one row per bin."""
    rows = [
        [length_name(same[0]), str(same[0].true), *(f"{row.f1:.1f}" for row in same)]
        for same in zip(*bins.values(), strict=True)
    ]
    return markdown_table(
        ["segments that last", "true segments", *(escaped(name) for name in bins)], rows
    )
