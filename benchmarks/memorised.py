"""What pretraining memorised: `python -m benchmarks.memorised [--json FILE]`.

From every token the heads of the neighbour term tell the mean token of the segment k places away.
Printed is how much of those means' variance they explain on test takes, and as the reference on
takes that pretraining saw. What they tell of seen takes only was memorised, not understood: a probe
fitted on features of seen takes meets other features on new ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import torch
import typer

from benchmarks.workers import Row, row, save_rows
from pjepa.core.tables import pretraining_takes, read_takes
from pjepa.features.encoded import encoder_segments
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.neighbours import NeighbourHeads, pairs_of, segment_means
from pjepa.streams.stream import StreamReader, Take
from pjepa.tools import paths


@torch.inference_mode()
def explained(
    encoder: ProcedureEncoder, heads: NeighbourHeads, takes: Iterable[Take]
) -> dict[int, float]:
    """Return the percent of variance that every head explains, over all tokens of the takes.

    Variance is counted from the mean of the training tokens, which normalised tokens have at 0.
    """
    error, variance = dict.fromkeys(heads.places, 0.0), dict.fromkeys(heads.places, 1e-12)
    for take in takes:
        x, layout = encoder.take(take.features, segment=encoder_segments(encoder, take))
        normal = encoder.normalised(x, layout)  # [T, d_in]
        features = encoder.contextualised(normal, layout)  # [T, d]
        pairs = pairs_of(heads.places, torch.arange(len(features)), layout)
        means = segment_means(normal, pairs.own, pairs.sizes)
        predicted = heads.predict_all(features).flatten(0, 1)[pairs.answers]
        true = means[pairs.segments]
        for number, k in enumerate(heads.places):
            at = pairs.answers % len(heads.places) == number
            error[k] += float((predicted[at] - true[at]).square().sum())
            variance[k] += float(true[at].square().sum())
    return {k: 100 * (1 - error[k] / variance[k]) for k in heads.places}


def main(
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the numbers.")
    ] = None,
) -> None:
    """Print one row per place."""
    stream, table = StreamReader(paths.STREAM), read_takes(paths.TAKES_TABLE)
    encoder = ProcedureEncoder.from_pretrained(paths.ENCODER)
    heads = NeighbourHeads.load(paths.ENCODER)
    test = set(table.loc[table["split"] == "test", "take_id"])
    new, seen = (
        explained(encoder, heads, (stream.read(take) for take in stream.takes if take in wanted))
        for wanted in (test, pretraining_takes(table))
    )
    cases: dict[str, Row] = {}
    print(f"{'variance explained, %':24}{'test takes':>12}{'seen takes':>12}")
    for k in heads.places:
        print(f"{f'segment {k:+d}' if k else 'own segment':24}{new[k]:12.1f}{seen[k]:12.1f}")
        cases[f"segment {k:+d}"] = row(new[k], seen[k], "%")
    save_rows(cases, json_file)


if __name__ == "__main__":
    typer.run(main)
