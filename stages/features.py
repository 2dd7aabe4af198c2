"""`features`: the frozen encoder over whole takes, and the same encoder untrained."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import torch

from pjepa.core.machine import device_kind
from pjepa.core.section import read_section
from pjepa.features.config import FeaturesConfig
from pjepa.features.controls import Represent, longest_segment_s, write_representation
from pjepa.features.encoded import (
    encoded,
    encoded_segment_mean,
    encoder_info,
    encoder_provenance,
    forecast_columns,
    forecast_info,
    random_encoder,
    whole_segment_provenance,
)
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.forecast import Forecaster, can_forecast
from pjepa.storage.reading import read_object
from pjepa.storage.writing import atomic_folder
from pjepa.streams.provenance import Provenance, SelectionLabels
from pjepa.streams.stream import StreamReader
from pjepa.tools import paths
from pjepa.tools.stage import stage_main
from pjepa.ui.console import say


def run() -> None:
    config = read_section(FeaturesConfig, "features")
    torch.set_num_threads(config.threads)
    stream = StreamReader(paths.STREAM)
    encoder = ProcedureEncoder.from_pretrained(paths.ENCODER, config.device)
    ahead = longest_segment_s(stream)
    kind = device_kind(config.device)
    chosen: SelectionLabels = read_object(paths.ENCODER / "selection.json", "selection_labels")[
        "selection_labels"
    ]

    token = encoder_provenance(stream.info, encoder.config, ahead)
    segment = whole_segment_provenance(stream.info, encoder.config, ahead)

    def write(path: str, name: str, represent: Represent, provenance: Provenance) -> None:
        info = encoder_info(stream.info, name, encoder.config.width, provenance).with_device(kind)
        target = folder / path / paths.STREAM.name
        write_representation(target, stream, info, represent, config.dtype, f"features: {name}")

    with atomic_folder(paths.representation("pjepa")) as folder:
        write("", "pjepa", partial(encoded, encoder), token.with_selection(chosen))
    with atomic_folder(paths.representation("pjepa_segment")) as folder:
        mean = partial(encoded_segment_mean, encoder)
        write("", "pjepa_segment", mean, segment.with_selection(chosen))
    with atomic_folder(paths.representation("random")) as folder:
        for draw in range(config.random_draws):
            untrained = random_encoder(encoder.config, encoder, config.random_seed + draw)
            write(str(draw), "random", partial(encoded, untrained), token)  # nothing was chosen
    with atomic_folder(paths.representation("forecast")) as folder:
        if can_forecast(paths.ENCODER):
            write_forecast(folder, stream, config, ahead, chosen)
        else:
            say("features: no forecast, which needs 1 among pjepa.neighbours")


def write_forecast(
    folder: Path,
    stream: StreamReader,
    config: FeaturesConfig,
    ahead: float,
    chosen: SelectionLabels,
) -> None:
    """Write the columns of the heads that were trained beside the encoder."""
    forecaster = Forecaster.from_pretrained(paths.ENCODER, config.device)
    info = forecast_info(stream.info, forecaster, ahead, chosen)
    info = info.with_device(device_kind(config.device))
    told, target = partial(forecast_columns, forecaster), folder / paths.STREAM.name
    write_representation(target, stream, info, told, config.dtype, "features: forecast")


if __name__ == "__main__":
    stage_main(run)
