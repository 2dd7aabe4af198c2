"""What an encoder's context is worth at test time: the release's three studies, for any data.

| study    | what the encoder is given                                            |
|----------|----------------------------------------------------------------------|
| budget   | k blocks before each block instead of the whole past, where they were |
| order    | a take whose segments were shuffled                                  |
| transfer | takes of another data set                                            |

Probes stay as they were fitted, on ordinary features of their own data set. So a loss shows what
encoder and probe together had relied on, not what could have been learned from less.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path

import numpy as np
import torch

from pjepa.core.runs import attention_segments, runs
from pjepa.core.section import read_section
from pjepa.core.tables import Classes, read_classes, read_takes
from pjepa.features.config import FeaturesConfig
from pjepa.features.controls import Represent
from pjepa.features.encoded import encoded, encoder_segments
from pjepa.metrics.bootstrap import Interval, Statistics, difference_intervals, intervals
from pjepa.model.attention import Layout, layout_of_takes
from pjepa.model.encoder import ProcedureEncoder
from pjepa.probes.base.registry import load_probe
from pjepa.probes.base.scoring import Roles, Targets, probe_segments, score_probe, take_roles
from pjepa.streams.provenance import StreamInfo
from pjepa.streams.stream import StreamReader, Take, read_labels
from pjepa.tools import paths
from pjepa.ui.console import InputError

# An encoder's features of a take of which it saw less, or in another order.

TOGETHER = 4096  # about so many tokens are encoded in one call


def budgeted(encoder: ProcedureEncoder, take: Take, past: int) -> np.ndarray:
    """Return features [T, d] for which the encoder saw each block and `past` blocks before it.

    Tokens keep their absolute positions c(i), r(i); a block is what attention calls one (Eq. 3).
    """
    if encoder.config.attention == "bidirectional":
        raise InputError(
            "bidirectional attention has one block only; a budget of blocks has no effect"
        )
    layout = layout_of_takes([encoder_segments(encoder, take)])
    block = layout.block(encoder.config.attention, encoder.config.block).numpy()
    starts, lengths = runs(block)
    firsts, ends = starts[np.maximum(np.arange(len(starts)) - past, 0)], starts + lengths
    call = np.cumsum(ends - firsts) // TOGETHER
    windows = np.split(np.stack([firsts, starts, ends], 1), runs(call)[0][1:])
    return np.concatenate([_last_blocks(encoder, take.features, layout, each) for each in windows])


@torch.inference_mode()
def _last_blocks(
    encoder: ProcedureEncoder, features: np.ndarray, layout: Layout, windows: np.ndarray
) -> np.ndarray:
    """Return the features of the last block of every window; windows are packed as takes are.

    A window [3] is its first token, the first token of its last block, and its end.
    """
    rows = torch.cat([torch.arange(first, end) for first, _, end in windows])
    last = torch.cat([torch.arange(first, end) >= start for first, start, end in windows])
    device = encoder.mean.device
    x = torch.as_tensor(features, dtype=torch.float32)[rows].to(device)
    packed = layout.at(rows, tuple((windows[:, 2] - windows[:, 0]).tolist())).to(device)
    return encoder(x, packed, last.nonzero()[:, 0].to(device)).float().cpu().numpy()


def shuffled_rows(take: Take, block: int, seed: int) -> np.ndarray:
    """Return the tokens [T] of a take in a random order of its segments, by `seed` and take id.

    Segments are the annotated ones, gaps between them included, or else blocks of `block` tokens.
    """
    annotated = (take.segment >= 0).any()
    ids = attention_segments(take.segment) if annotated else np.arange(len(take.segment)) // block
    starts, lengths = runs(ids)
    random = np.random.default_rng([seed, zlib.crc32(take.take_id.encode())])
    order = random.permutation(len(starts))
    return np.concatenate([np.arange(starts[i], starts[i] + lengths[i]) for i in order])


def shuffled(encoder: ProcedureEncoder, take: Take, seed: int) -> np.ndarray:
    """Return features [T, d], in the take's own order, of an encoder that saw it shuffled."""
    rows = shuffled_rows(take, encoder.config.block, seed)
    segment = take.segment
    if (segment >= 0).any():
        segment = attention_segments(attention_segments(segment)[rows]).astype(np.int32)
    moved = replace(take, features=take.features[rows], segment=segment)
    return encoded(encoder, moved)[np.argsort(rows)]


RESAMPLES = 1000


def studied_takes(project: Path, classes: Classes) -> tuple[Targets, float]:
    """Return a project's labels as the probe's classes, matched by their names.

    The second value is the share of the reported takes' labelled tokens whose class the probe does
    not know: they are left out of every score.
    """
    theirs = read_classes(project / paths.CLASSES)
    labels = read_labels(project / paths.LABELS)
    roles = take_roles(read_takes(project / paths.TAKES_TABLE), labels)
    known = {name: number for number, name in enumerate(classes.names)}
    table = np.array([*(known.get(name, -1) for name in theirs.names), -1], np.int32)
    renamed = {take: table[labels[take]] for take in roles.reported}  # -1 stays -1
    before = sum(int((labels[take] >= 0).sum()) for take in roles.reported)
    after = sum(int((row >= 0).sum()) for row in renamed.values())
    if not after:
        raise InputError(
            f"{project / paths.CLASSES}: no class of the reported takes is one of the probe's; "
            f"expected some of {', '.join(classes.names)}"
        )
    return Targets(renamed, roles, len(classes.names), classes.background), 1 - after / before


def check_same_tokens(ours: StreamInfo, theirs: StreamInfo) -> None:
    """Raise unless two streams hold tokens of one kind."""
    for what, mine, other in (
        ("channels", ours.width, theirs.width),
        ("tokens a second", ours.fps, theirs.fps),
        ("pooler", ours.pooler and ours.pooler.sha256, theirs.pooler and theirs.pooler.sha256),
    ):
        if mine != other:
            raise InputError(
                f"{what}: {mine} here, {other} there; an encoder transfers between data sets "
                "whose tokens one pooler made (pooler.kind=mean trains none)"
            )


@dataclass(frozen=True)
class StudyRow:
    """One line of the table: scores in percent, and their change from the first of its kind."""

    representation: str
    context: str
    scores: Mapping[str, Interval]
    change: Mapping[str, Interval] | None = None


@dataclass(frozen=True)
class Study:
    """The rows of a study, and the share of tokens that it left out."""

    roles: Roles  # of the takes that were scored
    unknown: float
    rows: Sequence[StudyRow]


def studied_project(project: Path, probe: str, past: Sequence[int], shuffles: int) -> Study:
    """Score this project's models on the reported takes of a project.

    Of `pjepa` with the whole past, with budgets, and with the order shuffled.
    """
    cells = {name: paths.cell(probe, name) / "model" for name in ("raw", "pjepa")}
    if not cells["pjepa"].is_dir():
        raise InputError(
            f"{cells['pjepa']}: no fitted probe; with labelled takes and {probe} in cells.probes, "
            "run `dvc repro`"
        )
    targets, unknown = studied_takes(project, read_classes(cells["pjepa"] / "classes.json"))
    reader = StreamReader(project / paths.STREAM)
    check_same_tokens(StreamReader(paths.STREAM).info, reader.info)
    config = read_section(FeaturesConfig, "features")
    torch.set_num_threads(config.threads)
    encoder = ProcedureEncoder.from_pretrained(paths.ENCODER, config.device)

    def scored(name: str, represent: Represent, dtype: str = config.dtype) -> Statistics:
        """Return the statistics of every reported take; features are rounded as stored ones."""

        def read(take_id: str) -> tuple[np.ndarray, np.ndarray]:
            take = reader.read(take_id)
            stored = represent(take).astype(dtype).astype(np.float32)
            return stored, probe_segments(take.segment)

        return score_probe(probes[name], read, targets).statistics

    probes = {name: load_probe(cell) for name, cell in cells.items() if cell.is_dir()}
    sample = targets.roles.groups, RESAMPLES, 0
    rows = []
    if "raw" in probes:
        as_it_is = scored("raw", attrgetter("features"), reader.dtype)
        rows.append(StudyRow("raw", "none", intervals([as_it_is], *sample)))
    whole = scored("pjepa", partial(encoded, encoder))
    rows.append(StudyRow("pjepa", "whole past", intervals([whole], *sample)))
    cases = {f"{k} past blocks": [partial(budgeted, encoder, past=k)] for k in past}
    if shuffles:
        orders = [partial(shuffled, encoder, seed=seed) for seed in range(shuffles)]
        cases["whole past, segments shuffled"] = orders
    for context, each in cases.items():
        draws = [scored("pjepa", represent) for represent in each]
        change = difference_intervals(draws, whole, *sample)
        rows.append(StudyRow("pjepa", context, intervals(draws, *sample), change))
    return Study(targets.roles, unknown, rows)
