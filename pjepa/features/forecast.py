"""The optional representation `forecast`: what follows a token's segment, and its surprise."""

from __future__ import annotations

import numpy as np

from pjepa.core.runs import runs
from pjepa.features.encoded import encoder_info
from pjepa.forecast.forecast import Forecaster
from pjepa.streams.schema import SelectionLabels, StreamInfo
from pjepa.streams.store import Take


def forecast_columns(forecaster: Forecaster, take: Take) -> np.ndarray:
    """Return the forecast [d_in] and surprise of every token's segment [T, d_in + 1]."""
    name = f"take {take.take_id}"
    segments = forecaster.encoder.segments(take.features, take.segment, name, take.recording)
    lengths = runs(segments)[1].tolist()
    return forecaster.tell(take.features, lengths).columns(lengths)


def forecast_info(
    stream: StreamInfo, forecaster: Forecaster, longest_s: float, selection: SelectionLabels
) -> StreamInfo:
    """Return file-level facts.

    Whatever attention sees, a token waits for the end of its segment.
    """
    config = forecaster.encoder.config
    waiting = config.model_copy(update={"attention": "clip_causal"})
    found = [
        encoder_info(stream, seen, "forecast", longest_s, selection) for seen in (config, waiting)
    ]
    widest = max(found, key=lambda i: (i.provenance.whole_take, i.provenance.lookahead_s))
    return widest.model_copy(update={"width": config.d_in + 1})
