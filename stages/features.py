"""`features`: the frozen encoder over whole takes, and the same encoder untrained."""

from __future__ import annotations

from contextlib import ExitStack

import torch

from pjepa.core.machine import device_kind
from pjepa.core.section import read_section
from pjepa.features.config import FeaturesConfig
from pjepa.features.controls import longest_segment_s, representation_info, write_representations
from pjepa.features.encoded import (
    encoded,
    encoder_provenance,
    random_encoder,
    represented,
    whole_segment_provenance,
)
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.forecast import Forecaster, can_forecast
from pjepa.storage.reading import read_object
from pjepa.storage.writing import atomic_folder
from pjepa.streams.provenance import Provenance, StreamInfo
from pjepa.streams.stream import StreamReader
from pjepa.tools import paths
from pjepa.tools.stage import stage_main
from pjepa.ui.console import say

OUTS = ("pjepa", "pjepa_segment", "forecast", "random")


def run() -> None:
    config = read_section(FeaturesConfig, "features")
    torch.set_num_threads(config.threads)
    stream = StreamReader(paths.STREAM)
    encoder = ProcedureEncoder.from_pretrained(paths.ENCODER, config.device)
    chosen = read_object(paths.ENCODER / "selection.json", "selection_labels")["selection_labels"]
    longest, kind = longest_segment_s(stream), device_kind(config.device)
    width = encoder.config.width
    token = encoder_provenance(stream.info, encoder.config, longest)
    segment = whole_segment_provenance(stream.info, encoder.config, longest)

    def info(name: str, width: int, provenance: Provenance) -> StreamInfo:
        return representation_info(name, stream.info, width, provenance).with_device(kind)

    with ExitStack() as stack:
        outs = {name: paths.representation(name) for name in OUTS}
        folders = {name: stack.enter_context(atomic_folder(out)) for name, out in outs.items()}
        files = {name: folder / paths.STREAM.name for name, folder in folders.items()}
        targets = {
            files["pjepa"]: info("pjepa", width, token.with_selection(chosen)),
            files["pjepa_segment"]: info("pjepa_segment", width, segment.with_selection(chosen)),
        }
        forecaster = None
        if can_forecast(paths.ENCODER):
            forecaster = Forecaster.from_pretrained(paths.ENCODER, config.device)
            told = info("forecast", encoder.config.d_in + 1, segment.with_selection(chosen))
            targets[files["forecast"]] = told
        else:
            say("features: no forecast: add 1 to pjepa.neighbours and pretrain again")
        write_representations(
            stream,
            targets,
            lambda take: represented(encoder, take, forecaster),
            config.dtype,
            "features: trained",
        )
        for draw in range(config.random_draws):  # nothing was chosen
            untrained = random_encoder(encoder.config, encoder, config.random_seed + draw)
            write_representations(
                stream,
                {folders["random"] / str(draw) / paths.STREAM.name: info("random", width, token)},
                lambda take: [encoded(untrained, take)],  # noqa: B023
                config.dtype,
                "features: random",
            )


if __name__ == "__main__":
    stage_main(run)
