"""`report`: tables, pictures and the one Git-tracked metrics file."""

from pjepa import paths
from pjepa.config.cells import CellsConfig
from pjepa.config.probe import LinearConfig, ProbeCommonConfig
from pjepa.config.report import ReportConfig
from pjepa.config.section import read_section
from pjepa.probes.skipped import skipped_reason
from pjepa.progress import say
from pjepa.report.marks import with_mark
from pjepa.report.proof import PRIMITIVE_READERS, demo_numbers, primitive_accuracy, proof_claims
from pjepa.report.results import read_results
from pjepa.report.tables import claim_line, headline_rows, metric_names, metrics_json
from pjepa.report.terminal import print_table
from pjepa.report.unlabelled import write_unlabelled
from pjepa.report.write import write_report
from pjepa.stage import stage_main
from pjepa.takes.manifest import read_classes
from pjepa.work import write_json


def run() -> None:
    """Writes results/report/ and results/metrics.json, and prints what they say."""
    listed, config = read_section(CellsConfig, "cells"), read_section(ReportConfig, "report")
    folders = [paths.cell(p, name) for p in listed.probes for name in listed.representations]
    reasons = [skipped_reason(folder) for folder in folders]
    if reasons and all(reasons):
        write_unlabelled(str(reasons[0]), paths.PRETRAIN_RESULTS, paths.REPORT)
        write_json(paths.METRICS, {})
        say(f"report: no probe was run: {reasons[0]}")
        return
    results = read_results(listed.probes, listed.representations, paths.cell, config)
    demo = demo_numbers(results, paths.DEMO_CEILINGS, primitives(listed.representations))
    write_report(
        results,
        demo,
        read_classes(paths.CLASSES),
        paths.PRETRAIN_RESULTS,
        config.timelines,
        paths.REPORT,
    )
    write_json(paths.METRICS, metrics_json(results, demo))
    for probe in results.probes:
        cells = results.of_probe(probe)
        title = with_mark(f"{probe} probe on {cells[0].split}, percent", cells)
        header = ["representation", *metric_names(cells)]
        print_table(title, header, headline_rows(results, probe))
    if demo is not None:
        print(f"ceilings of acc: appearance {demo.appearance:.1f}, history {demo.history:.1f}")
        for claim in proof_claims(results, demo):
            print(claim_line(claim))


def primitives(representations: tuple[str, ...]) -> dict[str, float]:
    """How well raw and pjepa show the demo's true primitive; empty without the demo."""
    if not paths.DEMO_CEILINGS.exists():
        return {}
    common = read_section(ProbeCommonConfig, "probe.common")
    linear = read_section(LinearConfig, "probe.linear")
    return {
        name: primitive_accuracy(
            paths.representation_streams(paths.representation(name))[0],
            paths.DEMO_TRUTH,
            paths.TAKES_TABLE,
            common,
            linear,
        )
        for name in PRIMITIVE_READERS
        if name in representations
    }


if __name__ == "__main__":
    stage_main(run)
