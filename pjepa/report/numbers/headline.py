"""The finding of a run in one sentence, and one line that explains each representation."""

from __future__ import annotations

from pjepa.metrics.bootstrap import Interval
from pjepa.report.numbers.marks import marked_name
from pjepa.report.numbers.results import REFERENCE, Cell, Results
from pjepa.report.numbers.tables import by_privilege, interval_span
from pjepa.report.numbers.text import escaped, markdown_table

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
