"""`python -m stages.probe PROBE REPRESENTATION`: one cell of the results."""

import sys

from pjepa.core.section import read_section
from pjepa.probes import probe_names
from pjepa.probes.base.cell import CellInputs, run_cell
from pjepa.probes.base.config import UNLABELLED, ProbeCommonConfig, all_unlabelled, write_skipped
from pjepa.probes.base.registry import probe_config
from pjepa.storage.reading import content_sha256, fingerprint
from pjepa.storage.work import work_folder
from pjepa.streams.stream import read_labels
from pjepa.tools import paths
from pjepa.tools.stage import stage_main
from pjepa.ui.console import InputError, say


def run() -> None:
    """Fit the probe on one representation and write its results folder."""
    if len(sys.argv) != 3 or sys.argv[1] not in probe_names():
        probes = "|".join(probe_names())
        raise InputError(f"usage: python -m stages.probe {probes} REPRESENTATION")
    probe, representation = sys.argv[1:]
    streams = paths.representation_streams(paths.representation(representation))
    truth = paths.DEMO_TRUTH if paths.DEMO_TRUTH.exists() else None
    inputs = CellInputs(streams, paths.LABELS, paths.TAKES_TABLE, paths.CLASSES, truth)
    out = paths.cell(probe, representation)
    if all_unlabelled(read_labels(inputs.labels)):
        write_skipped(out, UNLABELLED)
        say(f"probe {probe} on {representation}: skipped, {UNLABELLED}")
        return
    common = read_section(ProbeCommonConfig, "probe.common")
    config = read_section(probe_config(probe), f"probe.{probe}")
    files = [*streams, inputs.labels, inputs.takes, inputs.classes, *([truth] if truth else [])]
    hashes = [content_sha256(path) for path in files if path.exists()]
    key = fingerprint(probe, representation, common.resume_key(), config.model_dump(), hashes)
    with work_folder("probe", key, {"probe": probe}) as work:
        run_cell(inputs, out, probe, representation, common, config, work)


if __name__ == "__main__":
    stage_main(run)
