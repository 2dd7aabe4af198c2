"""The streamed scores of a cell, with the future hidden (paper Table 3)."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pjepa.core.runs import Span, runs
from pjepa.metrics.bootstrap import Statistics, intervals
from pjepa.metrics.segmentation import scores
from pjepa.probes.base.scoring import (
    CellData,
    Features,
    Index,
    Probe,
    Run,
    Sight,
    probe_segments,
    scored,
    seconds_ahead,
)
from pjepa.streams.provenance import Provenance
from pjepa.streams.stream import Take
from pjepa.ui.console import Meter

Tick = Callable[[], None]  # called after every prefix that was run again


def segment_steps(segments: Index) -> Index:
    """Return the ends of the prefixes that grow by one segment at a time."""
    starts, lengths = runs(segments)
    return starts + lengths


def time_steps(times: NDArray[np.float64], step_s: float) -> Index:
    """Return the ends of the prefixes that grow by `step_s` seconds; empty steps are left out."""
    if not len(times):
        return np.zeros(0, np.int64)
    step = np.floor((times - times[0]) / step_s + 1e-9).astype(np.int64)
    return segment_steps(step)


def newest_ends(ends: Index) -> Index:
    """Return for every token the end of the prefix in which it was new."""
    return np.repeat(ends, np.diff(ends, prepend=0))


def repeated_steps(sight: Sight, segments: Index, ends: Index) -> list[Span]:
    """Return start and end of the steps that one pass over the whole take would get wrong."""
    late = sight.ends(segments) > newest_ends(ends)  # [T] saw more than its prefix
    starts = [0, *ends.tolist()]
    return [(start, end) for start, end in pairwise(starts) if late[start:end].any()]


def streamed(
    probe: Probe,
    features: Features,
    segments: Index,
    ends: Index,
    tick: Tick = lambda: None,
) -> Features:
    """Return probabilities [T, C], each row predicted from the prefix in which it was new."""
    probability = probe.predict(features, segments).copy()
    spans = repeated_steps(probe.sight, segments, ends)
    newest = probe.predict_newest(features, segments, spans)
    for (start, end), rows in zip(spans, newest, strict=True):
        probability[start:end] = rows
        tick()
    return probability


@dataclass(frozen=True)
class StreamingProtocol:
    """How the context grows: one annotated segment, or `step_s` seconds, at a time."""

    name: str
    step_s: float

    def ends(self, take: Take) -> Index:
        """Return the ends of the prefixes of one take."""
        if self.name == "segments":
            return segment_steps(probe_segments(take.segment))
        return time_steps(take.times, self.step_s)


def cell_streaming(cell: CellData, runs: Sequence[Run]) -> dict[str, Any]:
    """Return streaming.json: one entry per protocol that applies, and what the features saw."""
    layouts = [cell.readers[0].read_layout(take) for take in cell.roles.reported]
    annotated = any((take.segment >= 0).any() for take in layouts)
    names = [name for name in cell.common.streaming if name != "segments" or annotated]
    protocols = [StreamingProtocol(name, cell.common.stream_step_s) for name in names]
    total = sum(
        len(repeated_steps(run.result.probe.sight, probe_segments(take.segment), p.ends(take)))
        for run in runs for p in protocols for take in layouts
    )  # fmt: skip
    if not total:  # every protocol equals one pass: nothing worth a progress line
        return {p.name: protocol_entry(cell, runs, p, lambda: None) for p in protocols}
    with Meter(f"{cell.name}, streamed", total, "step") as meter:
        return {p.name: protocol_entry(cell, runs, p, meter.advance) for p in protocols}


def protocol_entry(
    cell: CellData, runs: Sequence[Run], protocol: StreamingProtocol, tick: Tick
) -> dict[str, Any]:
    """Return the streamed metrics, their intervals and statistics, and what could be seen."""
    by_run = [streamed_statistics(cell, run, protocol, tick) for run in runs]
    rows = [{k: float(v) for k, v in scores(list(row.values())).items()} for row in by_run]
    spread = intervals(by_run, cell.roles.groups, cell.common.bootstrap, cell.common.seed)
    entry: dict[str, Any] = {
        "metrics": {name: float(np.mean([row[name] for row in rows])) for name in rows[0]},
        "intervals": {name: asdict(value) for name, value in spread.items()},
        "boundaries": boundaries_used(runs[0].result.probe.sight, protocol),
        "runs": [
            {"variant": run.variant, "seed": run.seed}
            | {"statistics": {take: asdict(value) for take, value in statistics.items()}}
            for run, statistics in zip(runs, by_run, strict=True)
        ],
    }
    if protocol.name == "seconds":
        entry["step_s"] = protocol.step_s
    return entry | visible_future(cell, runs[0], protocol)


def boundaries_used(sight: Sight, protocol: StreamingProtocol) -> str:
    """Return whose boundaries the streamed predictions need."""
    annotated = protocol.name == "segments" or sight.to == "segment"
    return "annotated" if annotated else "none"


def streamed_statistics(
    cell: CellData, run: Run, protocol: StreamingProtocol, tick: Tick
) -> Statistics:
    """Return the statistics of every reported take, streamed."""
    statistics = {}
    for name in cell.roles.reported:
        take = cell.readers[run.variant].read(name)
        segments, ends = probe_segments(take.segment), protocol.ends(take)
        probability = streamed(run.result.probe, take.features, segments, ends, tick)
        labels = cell.labels[name].astype(np.int64)
        statistics[name] = scored(labels, probability, segments, cell.classes.background)
    return statistics


def visible_future(cell: CellData, run: Run, protocol: StreamingProtocol) -> dict[str, Any]:
    """Return how far ahead of a token its streamed prediction could see, at most, and why.

    The features were made once, from whole takes: what they saw ahead is not undone by hiding
    later tokens from the probe, so it is added.
    """
    sight, ahead, equal = run.result.probe.sight, [0.0], True
    for name in cell.roles.reported:
        take = cell.readers[run.variant].read_layout(name)
        segments, ends = probe_segments(take.segment), protocol.ends(take)
        seen = np.minimum(sight.ends(segments), newest_ends(ends))
        ahead.append(seconds_ahead(seen, take.times))
        equal = equal and not repeated_steps(sight, segments, ends)
    upstream = cell.readers[run.variant].info.provenance
    same_ends = protocol.name == "segments" and upstream.inside_segments
    both = (max(ahead), upstream.lookahead_s)
    return {
        "equals_offline": equal,
        "probe_lookahead_s": max(ahead),
        "representation_lookahead_s": upstream.lookahead_s,
        "representation_whole_take": upstream.whole_take,
        "lookahead_s": max(both) if same_ends else sum(both),
        "note": future_note(protocol.name, upstream),
    }


def future_note(protocol: str, upstream: Provenance) -> str:
    """Return in words whether features made from whole takes keep to the protocol."""
    if upstream.whole_take:
        return "see the whole take: this is not streaming"
    if protocol == "segments" and upstream.inside_segments:
        return "end with their segment: streamed, they would be the same"
    if protocol == "seconds" and upstream.boundaries_test == "annotated":
        return "see to the end of their annotated segment, beyond the step"
    ahead = upstream.lookahead_s
    return f"see up to {ahead:g} s ahead themselves" if ahead else "see nothing ahead"
