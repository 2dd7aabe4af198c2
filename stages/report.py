"""`report`: the page, tables, pictures and the one Git-tracked metrics file."""

from collections.abc import Sequence
from pathlib import Path

import yaml

from pjepa.core.section import read_params, read_section
from pjepa.core.tables import read_classes, read_takes, read_videos
from pjepa.probes.base.config import skipped_reason
from pjepa.report.analyses import analyse
from pjepa.report.config import CellsConfig, ReportConfig
from pjepa.report.content import ReportRun, write_report, write_unlabelled
from pjepa.report.figures import probe_tracks
from pjepa.report.frames import pictures_store, take_sheets
from pjepa.report.gains import DemoNumbers, demo_numbers, proof_claims
from pjepa.report.provenance import Origin, git_revision, read_origin
from pjepa.report.results import Cell, Results, read_predictions, read_results
from pjepa.report.tables import claim_line, headline_rows, metric_names, metrics_json, with_mark
from pjepa.report.widgets import read_curves
from pjepa.select.curve import JSON, read_curve
from pjepa.storage.writing import write_json
from pjepa.tools import paths
from pjepa.tools.stage import stage_main
from pjepa.ui.console import print_table, say


def run() -> None:
    """Write results/report/ and results/metrics.json, and print the results."""
    listed, config = read_section(CellsConfig, "cells"), read_section(ReportConfig, "report")
    folders = [paths.cell(p, name) for p in listed.probes for name in listed.representations]
    reasons = [skipped_reason(folder) for folder in folders]
    if reasons and all(reasons):
        made_from = origin(listed.representations, (), config)
        curves = read_curves(paths.PRETRAIN_RESULTS)
        write_unlabelled(str(reasons[0]), curves, made_from, paths.REPORT)
        write_json(paths.METRICS, {})
        say(f"report: no probe was run: {reasons[0]}; features are in {paths.REPRESENTATIONS}/")
        return
    results = read_results(listed.probes, listed.representations, paths.cell, config)
    demo = demo_numbers(results, paths.DEMO_CEILINGS)
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


def read_run(results: Results, demo: DemoNumbers | None, config: ReportConfig) -> ReportRun:
    """Return everything the report shows, read and analysed."""
    classes = read_classes(paths.CLASSES)
    predictions = {(c.probe, c.representation): read_predictions(c.folder) for c in results.cells}
    first = {name: p for (probe, name), p in predictions.items() if probe == results.probes[0]}
    tracks = probe_tracks(results, predictions)
    videos = {video.take_id: video for video in read_videos(paths.VIDEOS_TABLE)}
    takes = next(iter(first.values()))
    table = read_takes(paths.TAKES_TABLE)
    reported = table[table["take_id"].isin(list(takes))]
    return ReportRun(
        dataset=", ".join(sorted(set(reported["dataset"]))),
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
            results.cells,
            config,
        ),
        config=config,
    )


def streams(representation: str) -> list[Path]:
    """Return the streams of a representation, one per variant."""
    return paths.representation_streams(paths.representation(representation))


def origin(representations: Sequence[str], cells: Sequence[Cell], config: ReportConfig) -> Origin:
    """Return the inputs of the report; its code is the list in dvc.yaml.

    Settings of probes are those that the cells were made with: the report does not track them.
    """
    data = [paths.VIDEOS_TABLE, paths.TAKES_TABLE, paths.CLASSES]
    data += [stream for name in representations for stream in streams(name)]
    data += [cell.folder / "predictions.parquet" for cell in cells]
    revision = git_revision() if config.git_revision else None
    params = {k: value for k, value in read_params().items() if k not in ("machine", "probe")}
    params["probe"] = {name: value for cell in cells for name, value in cell.settings.items()}
    return read_origin(params, data, tracked_code(), revision)


def tracked_code() -> list[Path]:
    """Return the code among the deps of `report` in dvc.yaml; none where there is no pipeline."""
    if not paths.PIPELINE.exists():
        return []
    deps = yaml.safe_load(paths.PIPELINE.read_text())["stages"]["report"]["deps"]
    named = [Path(dep) for dep in deps if dep.startswith(("pjepa/", "stages/"))]
    inside = [sorted(path.rglob("*")) if path.is_dir() else [path] for path in named]
    return [file for group in inside for file in group if file.is_file()]


if __name__ == "__main__":
    stage_main(run)
