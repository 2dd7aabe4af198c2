"""`pjepa questions`: what comes next, and how far along is it, on the outputs of the pipeline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import torch

from pjepa.core.files import atomic_folder, write_json
from pjepa.core.section import read_section
from pjepa.core.tables import read_classes, read_takes
from pjepa.encoder.encoder import ProcedureEncoder
from pjepa.features.config import FeaturesConfig
from pjepa.features.encoded import random_encoder
from pjepa.metrics.bootstrap import Interval
from pjepa.probes.base.roles import Roles, take_roles
from pjepa.probes.linear.config import LinearConfig
from pjepa.questions.ask import (
    Asked,
    ByTake,
    asked,
    next_answers,
    next_tallies,
    progress_answers,
    progress_tally,
)
from pjepa.questions.demo import bayes_next
from pjepa.questions.outlook import ABOUT, NEXT, PROGRESS, encoder_id
from pjepa.questions.scores import pooled, table
from pjepa.streams.store import StreamReader, read_labels
from pjepa.takes.sources.demo.chain import build_chain
from pjepa.tools import paths

RESAMPLES = 2000
AGAINST = {"next": ("raw", "history"), "progress": ("clock", "history")}
Scored = dict[str, dict[str, Interval]]  # by row: `value`, and `- CONTROL`


@dataclass(frozen=True)
class Answers:
    """The tables; `next` at every share of a segment, and all together."""

    next: dict[str, Scored]
    progress: Scored
    split: str

    def values(self) -> dict[str, Any]:
        """Return every number as JSON values."""
        parts = {f"next at {share}": rows for share, rows in self.next.items()}
        return {
            what: {row: {k: vars(v) for k, v in cells.items()} for row, cells in rows.items()}
            for what, rows in {**parts, "progress": self.progress}.items()
        }


def answer_questions() -> Answers:
    """Cut the takes, fit the answers and score them; write the tables and the fitted heads."""
    features = read_section(FeaturesConfig, "features")
    torch.set_num_threads(features.threads)
    encoder = ProcedureEncoder.from_pretrained(paths.ENCODER, features.device)
    untrained = random_encoder(encoder.config, encoder, features.random_seed)
    labels, classes = read_labels(paths.LABELS), read_classes(paths.CLASSES)
    roles = take_roles(read_takes(paths.TAKES_TABLE), labels)
    world = asked(
        StreamReader(paths.STREAM),
        labels,
        classes.background,
        (*roles.fit, *roles.holdout, *roles.reported),
        {"pjepa": encoder, "random": untrained},
    )
    config = read_section(LinearConfig, "probe.linear")
    steps = next_answers(world, roles, len(classes.names), config)
    guesses = {name: guess for name, (_, guess) in steps.items()} | _ceiling(world, roles)
    ridges, times = progress_answers(world, roles)
    found = _scored(world, roles, guesses, times)
    with atomic_folder(paths.QUESTIONS) as folder:
        write_json(folder / "tables.json", found.values())
        steps["pjepa"][0].save(folder / NEXT)
        ridges["pjepa"].save(folder / PROGRESS)
        write_json(folder / ABOUT, {"encoder": encoder_id(paths.ENCODER)})
    return found


def _ceiling(world: Asked, roles: Roles) -> dict[str, ByTake]:
    """Return the Bayes filter's guesses where the grammar is known: on the demo."""
    if not paths.DEMO_TRUTH.exists():
        return {}
    chain, truth = build_chain(), dict(list(pd.read_parquet(paths.DEMO_TRUTH).groupby("take_id")))
    found = {}
    for take in roles.reported:
        cuts = world.cuts[take]
        states = truth[take]["state"].to_numpy()[cuts.start[cuts.share == 1]]
        found[take] = bayes_next(chain, states)[cuts.segment]
    return {"bayes": found}


def _scored(
    world: Asked, roles: Roles, steps: Mapping[str, ByTake], times: Mapping[str, ByTake]
) -> Answers:
    groups = [roles.groups[take] for take in roles.reported]
    tallies = next_tallies(world, roles.reported, steps)
    at = {f"{share:.0%}": rows for share, rows in tallies.items()}
    at["all"] = {name: pooled([rows[name] for rows in tallies.values()]) for name in steps}
    errors = {name: progress_tally(world, roles.reported, guess) for name, guess in times.items()}
    return Answers(
        {share: table(rows, AGAINST["next"], groups, RESAMPLES) for share, rows in at.items()},
        table(errors, AGAINST["progress"], groups, RESAMPLES),
        roles.split,
    )


def next_lines(found: Answers) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table for people: right at each share, gains over all."""
    header = ["", *found.next, *(f"all - {name}" for name in AGAINST["next"])]
    rows = [
        [name, *(f"{part[name]['value'].mean:.1f}" for part in found.next.values())]
        + [span(cells.get(f"- {rest}")) for rest in AGAINST["next"]]
        for name, cells in found.next["all"].items()
    ]
    return header, rows


def progress_lines(found: Answers) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table for people."""
    header = ["", "error", *(f"- {name}" for name in AGAINST["progress"])]
    rows = [
        [name, f"{cells['value'].mean:.1f}"]
        + [span(cells.get(f"- {rest}")) for rest in AGAINST["progress"]]
        for name, cells in found.progress.items()
    ]
    return header, rows


def span(found: Interval | None) -> str:
    """Return a difference such as `+3.1 [1.0, 5.2]`; nothing for a row against itself."""
    if found is None:
        return ""
    return f"{found.mean:+.1f}" + (f" [{found.low:.1f}, {found.high:.1f}]" if found.holds else "")
