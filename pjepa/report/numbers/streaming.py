"""Streamed scores (the future hidden) and the overview of all probes, as Markdown."""

from __future__ import annotations

from pjepa.report.numbers.marks import marked_name, with_mark
from pjepa.report.numbers.results import OFFLINE, REFERENCE, Cell, Results
from pjepa.report.numbers.text import markdown_table

PROTOCOLS = {
    "segments": "one annotated segment at a time (paper Table 3)",
    "seconds": "fixed seconds at a time (the steps need no boundaries)",
}
SHOWN = ("acc", "acc_bg", "edit", "f1_10", "f1_25", "f1_50")


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
        values = [score_text(results, cell, name, protocol) for name in SHOWN]
        seen = cell.streamed[protocol].seen
        ahead = "take" if seen["representation_whole_take"] else f"{seen['lookahead_s']:.2f}"
        rows.append([f"`{marked_name(cell)}`", *values, ahead, seen["boundaries"], seen["note"]])
    corner = with_mark("representation", cells)
    names = [f"`{name}`" for name in SHOWN]
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
