"""`controls`: representations made from the raw stream without learning."""

from __future__ import annotations

from pjepa.core.section import read_section
from pjepa.features.config import ControlsConfig
from pjepa.features.controls import (
    CONTROLS,
    Control,
    Represent,
    control_info,
    longest_segment_s,
    write_representation,
)
from pjepa.storage.writing import atomic_folder
from pjepa.streams.stream import StreamReader
from pjepa.tools import paths
from pjepa.tools.stage import stage_main


def run() -> None:
    config = read_section(ControlsConfig, "controls")
    stream = StreamReader(paths.STREAM)
    longest = longest_segment_s(stream)
    first = stream.read(stream.takes[0])
    for name, control in CONTROLS.items():
        width = control(first, config, stream.info.fps).shape[1]
        info = control_info(name, stream.info, width, longest)
        represent = _with(control, config, stream.info.fps)
        with atomic_folder(paths.representation(name)) as folder:
            write_representation(
                folder / paths.STREAM.name,
                stream,
                info,
                represent,
                stream.dtype,
                f"controls: {name}",
            )


def _with(control: Control, config: ControlsConfig, fps: float) -> Represent:
    return lambda take: control(take, config, fps)


if __name__ == "__main__":
    stage_main(run)
