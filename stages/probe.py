"""`python -m stages.probe PROBE REPRESENTATION`: one cell of the results."""

import sys

from pjepa import paths
from pjepa.config.probe import LinearConfig, ProbeCommonConfig
from pjepa.config.section import read_section
from pjepa.config.trained import TrainedConfig
from pjepa.errors import InputError
from pjepa.probes.cell import CellInputs, run_cell
from pjepa.probes.registry import KINDS
from pjepa.probes.skipped import UNLABELLED, all_unlabelled, write_skipped
from pjepa.progress import say
from pjepa.stage import stage_main
from pjepa.streams.store import read_labels
from pjepa.work import content_sha256, fingerprint, work_folder


def run() -> None:
    """Fits the probe on one representation and writes its results folder."""
    known = ["linear", *KINDS]
    if len(sys.argv) != 3 or sys.argv[1] not in known:
        probes = "|".join(known)
        raise InputError(f"usage: python -m stages.probe {probes} REPRESENTATION")
    probe, representation = sys.argv[1:]
    streams = paths.representation_streams(paths.representation(representation))
    inputs = CellInputs(streams, paths.LABELS, paths.TAKES_TABLE, paths.CLASSES)
    out = paths.cell(probe, representation)
    if all_unlabelled(read_labels(inputs.labels)):
        write_skipped(out, UNLABELLED)
        say(f"probe {probe} on {representation}: skipped, {UNLABELLED}")
        return
    common = read_section(ProbeCommonConfig, "probe.common")
    config = probe_config(probe)
    files = [*streams, inputs.labels, inputs.takes, inputs.classes]
    hashes = [content_sha256(path) for path in files if path.exists()]
    key = fingerprint(probe, representation, common.model_dump(), config.model_dump(), hashes)
    with work_folder("probe", key) as work:
        run_cell(inputs, out, probe, representation, common, config, work)


def probe_config(probe: str) -> LinearConfig | TrainedConfig:
    """The probe's own section of params."""
    if probe == "linear":
        return read_section(LinearConfig, "probe.linear")
    return read_section(KINDS[probe].config, f"probe.{probe}")


if __name__ == "__main__":
    stage_main(run)
