"""The optional representation `forecast`: what follows a token's segment, and its surprise."""

from __future__ import annotations

import numpy as np

from pjepa.core.runs import runs
from pjepa.features.encoded import encoder_info, encoder_segments, whole_segment_provenance
from pjepa.forecast.forecast import Forecaster
from pjepa.streams.schema import SelectionLabels, StreamInfo
from pjepa.streams.store import Take


def forecast_columns(forecaster: Forecaster, take: Take) -> np.ndarray:
    """Return the forecast [d_in] and surprise of every token's segment [T, d_in + 1]."""
    lengths = runs(encoder_segments(forecaster.encoder, take))[1].tolist()
    return forecaster.tell(take.features, lengths).columns(lengths)


def forecast_info(
    stream: StreamInfo, forecaster: Forecaster, longest_s: float, selection: SelectionLabels
) -> StreamInfo:
    """Return file-level facts."""
    config = forecaster.encoder.config
    seen = whole_segment_provenance(stream, config, longest_s).with_selection(selection)
    return encoder_info(stream, "forecast", config.d_in + 1, seen)
