"""`report`: the page, tables, pictures and the one Git-tracked metrics file."""

from collections.abc import Sequence
from pathlib import Path

import yaml

from pjepa import paths
from pjepa.config.cells import CellsConfig
from pjepa.config.probe import LinearConfig, ProbeCommonConfig
from pjepa.config.report import ReportConfig
from pjepa.config.section import read_params, read_section
from pjepa.probes.curve_file import JSON, read_curve
from pjepa.probes.skipped import skipped_reason
from pjepa.progress import say
from pjepa.report.analyses import analyse
from pjepa.report.content import Run
from pjepa.report.figures import read_curves
from pjepa.report.frames import pictures_store, take_sheets
from pjepa.report.marks import with_mark
from pjepa.report.predictions import read_predictions
from pjepa.report.proof import (
    PRIMITIVE_READERS,
    DemoNumbers,
    demo_numbers,
    primitive_accuracy,
    proof_claims,
)
from pjepa.report.provenance import Origin, git_revision, read_origin
from pjepa.report.results import Results, read_results
from pjepa.report.tables import claim_line, headline_rows, metric_names, metrics_json
from pjepa.report.terminal import print_table
from pjepa.report.timelines import probe_tracks
from pjepa.report.unlabelled import write_unlabelled
from pjepa.report.write import write_report
from pjepa.stage import stage_main
from pjepa.takes.manifest import read_classes, read_videos
from pjepa.work import write_json


def run() -> None:
    """Writes results/report/ and results/metrics.json, and prints what they say."""
    listed, config = read_section(CellsConfig, "cells"), read_section(ReportConfig, "report")
    folders = [paths.cell(p, name) for p in listed.probes for name in listed.representations]
    reasons = [skipped_reason(folder) for folder in folders]
    if reasons and all(reasons):
        made_from = origin(listed.representations, [], config)
        write_unlabelled(str(reasons[0]), paths.PRETRAIN_RESULTS, made_from, paths.REPORT)
        write_json(paths.METRICS, {})
        say(f"report: no probe was run: {reasons[0]}")
        return
    results = read_results(listed.probes, listed.representations, paths.cell, config)
    demo = demo_numbers(results, paths.DEMO_CEILINGS, primitives(listed.representations))
    finished = read_run(results, demo, config)
    write_report(finished, paths.REPORT)
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
    print(f"open {paths.REPORT / 'index.html'}")


def read_run(results: Results, demo: DemoNumbers | None, config: ReportConfig) -> Run:
    """Everything the report shows, read and analysed."""
    classes = read_classes(paths.CLASSES)
    predictions = {(c.probe, c.representation): read_predictions(c.folder) for c in results.cells}
    first = {name: p for (probe, name), p in predictions.items() if probe == results.probes[0]}
    tracks = probe_tracks({p: results.of_probe(p) for p in results.probes}, predictions)
    videos = {video.take_id: video for video in read_videos(paths.VIDEOS_TABLE)}
    takes = next(iter(first.values()))
    return Run(
        results=results,
        demo=demo,
        classes=classes,
        predictions=predictions,
        tracks=tracks,
        analyses=analyse(results, first, classes, streams, config),
        curves=read_curves(paths.PRETRAIN_RESULTS),
        probe_curve=read_curve(paths.CURVE / JSON),
        sheets=take_sheets(videos, takes, config.frames, pictures_store()),
        origin=origin(
            [cell.representation for cell in results.of_probe(results.probes[0])],
            [cell.folder / "predictions.parquet" for cell in results.cells],
            config,
        ),
        config=config,
    )


def streams(representation: str) -> list[Path]:
    """The streams of a representation, one per variant."""
    return paths.representation_streams(paths.representation(representation))


def origin(
    representations: Sequence[str], predictions: Sequence[Path], config: ReportConfig
) -> Origin:
    """What the report is made from; its code is what dvc.yaml lists for it."""
    data = [paths.VIDEOS_TABLE, paths.TAKES_TABLE, paths.CLASSES]
    data += [stream for name in representations for stream in streams(name)]
    data += predictions
    revision = git_revision() if config.git_revision else None
    return read_origin(read_params(), data, tracked_code(), revision)


def tracked_code() -> list[Path]:
    """The code among the deps of `report` in dvc.yaml; none where there is no pipeline."""
    if not paths.PIPELINE.exists():
        return []
    deps = yaml.safe_load(paths.PIPELINE.read_text())["stages"]["report"]["deps"]
    named = [Path(dep) for dep in deps if dep.startswith(("pjepa/", "stages/"))]
    inside = [sorted(path.rglob("*")) if path.is_dir() else [path] for path in named]
    return [file for group in inside for file in group if file.is_file()]


def primitives(representations: tuple[str, ...]) -> dict[str, float]:
    """How well raw and pjepa show the demo's true primitive; empty without the demo."""
    if not paths.DEMO_CEILINGS.exists():
        return {}
    common = read_section(ProbeCommonConfig, "probe.common")
    linear = read_section(LinearConfig, "probe.linear")
    return {
        name: primitive_accuracy(
            streams(name)[0], paths.DEMO_TRUTH, paths.TAKES_TABLE, common, linear
        )
        for name in PRIMITIVE_READERS
        if name in representations
    }


if __name__ == "__main__":
    stage_main(run)
