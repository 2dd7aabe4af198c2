"""`features`: the frozen encoder over whole takes, and the same encoder untrained."""

from __future__ import annotations

from functools import partial

import torch

from pjepa import paths
from pjepa.config.features import FeaturesConfig
from pjepa.config.section import read_section
from pjepa.features.encoded import encoded, encoded_segment_mean, encoder_info, random_encoder
from pjepa.features.export import Represent, longest_segment_s, write_representation
from pjepa.model.encoder import ProcedureEncoder
from pjepa.stage import stage_main
from pjepa.streams.schema import SelectionLabels
from pjepa.streams.store import StreamReader
from pjepa.work import read_json, whole_folder


def run() -> None:
    config = read_section(FeaturesConfig, "features")
    torch.set_num_threads(config.threads)
    stream = StreamReader(paths.STREAM)
    encoder = ProcedureEncoder.from_pretrained(paths.ENCODER, config.device)
    ahead = longest_segment_s(stream)
    chosen: SelectionLabels = read_json(paths.ENCODER / "selection.json")["selection_labels"]

    def write(
        path: str, name: str, represent: Represent, selection: SelectionLabels = chosen
    ) -> None:
        info = encoder_info(stream.info, encoder.config, name, ahead, selection)
        target = folder / path / paths.STREAM.name
        write_representation(target, stream, info, represent, config.dtype, f"features: {name}")

    with whole_folder(paths.representation("pjepa")) as folder:
        write("", "pjepa", partial(encoded, encoder))
    with whole_folder(paths.representation("pjepa_segment")) as folder:
        write("", "pjepa_segment", partial(encoded_segment_mean, encoder))
    with whole_folder(paths.representation("random")) as folder:
        for draw in range(config.random_draws):
            untrained = random_encoder(encoder.config, encoder, config.random_seed + draw)
            write(str(draw), "random", partial(encoded, untrained), "none")  # nothing was chosen


if __name__ == "__main__":
    stage_main(run)
