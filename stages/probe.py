"""`python -m stages.probe PROBE REPRESENTATION`: one cell of the results."""

import sys

from pjepa import paths
from pjepa.config.probe import LinearConfig, ProbeCommonConfig
from pjepa.config.section import read_section
from pjepa.errors import InputError
from pjepa.probes.cell import CellInputs, run_cell
from pjepa.stage import stage_main


def run() -> None:
    """Fits the probe on one representation and writes its results folder."""
    if len(sys.argv) != 3 or sys.argv[1] != "linear":
        raise InputError("usage: python -m stages.probe linear REPRESENTATION")
    probe, representation = sys.argv[1:]
    folder = paths.representation(representation)
    run_cell(
        CellInputs(
            paths.representation_streams(folder), paths.LABELS, paths.TAKES_TABLE, paths.CLASSES
        ),
        paths.cell(probe, representation),
        probe,
        representation,
        read_section(ProbeCommonConfig, "probe.common"),
        read_section(LinearConfig, f"probe.{probe}"),
    )


if __name__ == "__main__":
    stage_main(run)
