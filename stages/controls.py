"""`controls`: representations made from the raw stream without learning."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np

from pjepa.core.section import read_section
from pjepa.features.config import ControlsConfig
from pjepa.features.controls import (
    CONTROLS,
    control_info,
    longest_segment_s,
    write_representations,
)
from pjepa.storage.writing import atomic_folder
from pjepa.streams.stream import StreamReader, Take
from pjepa.tools import paths
from pjepa.tools.stage import stage_main


def run() -> None:
    config = read_section(ControlsConfig, "controls")
    stream = StreamReader(paths.STREAM)
    longest = longest_segment_s(stream)

    def represent(take: Take) -> list[np.ndarray]:
        return [control(take, config, stream.info.fps) for control in CONTROLS.values()]

    widths = [rows.shape[1] for rows in represent(stream.read(stream.takes[0]))]
    with ExitStack() as stack:
        targets = {}
        for name, width in zip(CONTROLS, widths, strict=True):
            folder = stack.enter_context(atomic_folder(paths.representation(name)))
            info = control_info(name, stream.info, width, longest)
            targets[folder / paths.STREAM.name] = info
        write_representations(stream, targets, represent, stream.dtype, "controls")


if __name__ == "__main__":
    stage_main(run)
