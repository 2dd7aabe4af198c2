"""Parts that the page of a run and of a comparison share: training, timelines, maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pjepa.curve.file import ProbeCurve
from pjepa.report.config import ReportConfig
from pjepa.report.figures.figures import Curve
from pjepa.report.figures.timelines import Track
from pjepa.report.numbers.gains import Gain, chosen_takes
from pjepa.report.numbers.maps import Maps
from pjepa.report.page.analyses_markdown import paths_markdown
from pjepa.report.page.frames import Sheet
from pjepa.report.page.page import Beside, PageSection, Part, Widget, script_json
from pjepa.report.page.widgets import (
    curve_data,
    map_data,
    probe_curve_data,
    sheet_data,
    take_data,
)

MEGABYTE = 1_000_000
PROBE_CURVE = (
    "Frame accuracy of a linear probe on snapshots of the encoder, fitted on train takes and "
    "scored on held-out train groups, which pretraining has not seen. `raw` is the stream itself, "
    "`random` the same encoder untrained. It only shows: nothing is chosen by it."
)
TIMELINE_SHARE = 0.6  # of the page; pictures get what is left


@dataclass
class Draft:
    """Sections and data while a page is put together."""

    sections: list[PageSection] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def widget(self, kind: str, key: str, value: Any) -> Widget:
        """Return a widget whose data is kept under `key`."""
        self.data[key] = value
        return Widget(kind, key)

    def add(self, name: str, title: str, parts: Sequence[Part]) -> None:
        """Add a section, unless it is empty."""
        if parts:
            self.sections.append(PageSection(name, title, parts))


def training_parts(
    draft: Draft, owners: Mapping[str, tuple[Sequence[Curve], ProbeCurve]]
) -> list[Part]:
    """Return curves of pretraining and of the probe over its epochs.

    Runs share charts, by their names.
    """
    logged = {name or "pretraining": curves for name, (curves, _) in owners.items() if curves}
    parts: list[Part] = [draft.widget("curves", "curves", curve_data(logged))] if logged else []
    probed = {name: curve for name, (_, curve) in owners.items() if curve.scores}
    if probed:
        chart = draft.widget("lines", "probe-curve", probe_curve_data(probed))
        parts += ["### Linear probe over epochs", Beside([chart, PROBE_CURVE])]
    return parts


def timeline_parts(
    draft: Draft,
    tracks: Sequence[Track],
    gains: Sequence[Gain],
    sheets: Mapping[str, Sheet],
    config: ReportConfig,
    spent: int,
) -> list[Part]:
    """Return timelines of as many takes as the page may hold, then pictures.

    Says what is left out.
    """
    if not tracks or not gains:
        return []
    room = config.page_mb * MEGABYTE - spent
    groups = tracks[0].cell.statistics.groups
    takes: list[dict[str, Any]] = []
    used = 0
    for choice in chosen_takes(gains, config.takes):
        take = take_data(choice, tracks, groups[choice.gain.take_id])
        used += len(script_json(take))
        if takes and used > TIMELINE_SHARE * room:
            break
        takes.append(take)
    pictured = 0
    for take in takes:
        if take["id"] in sheets:
            sheet = sheet_data(sheets[take["id"]])
            used += len(script_json(sheet))
            if used > 0.97 * room:
                break
            take["frames"] = sheet
            pictured += 1
    text = _timeline_text(len(takes), len(gains), pictured, bool(sheets), config)
    return [text, draft.widget("timelines", "timelines", {"takes": takes})]


def _timeline_text(
    shown: int, takes: int, pictured: int, videos: bool, config: ReportConfig
) -> str:
    which = f"All {takes} takes" if shown == takes else f"**{shown} of {takes} takes**"
    text = f"{which}: best, median and worst by gain first, then evenly between. "
    if shown < takes:
        text += f"The rest is left out to keep the page below {config.page_mb:g} MB and readable. "
    text += (
        "Point at a segment for its class, time and mean score; click it for pictures. With the "
        "keyboard: Tab to a strip, arrow keys, Enter. "
    )
    if not config.frames:
        return text + "Pictures are off (`report.frames`)."
    if not videos:
        return text + "No videos were found on this machine, so there are no pictures."
    if pictured < shown:
        text += f"Pictures of {pictured} takes fit into the page."
    return text


def map_parts(draft: Draft, key: str, maps: Maps) -> list[Part]:
    """Return the maps of the same segments, and the table of the paths on them."""
    chart = map_data(maps.points, maps.labels, maps.times, maps.takes, maps.take)
    return [draft.widget("maps", key, chart), *paths_markdown(maps)]
