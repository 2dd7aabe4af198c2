"""The proof over several worlds: `python -m benchmarks.proof` (or `make proof`).

Runs the whole pipeline as DVC experiments for every `data.seed`, once with procedures and once
with the same segments shuffled, and prints medians over the seeds beside what is promised. The
promises are made for mean pooling, which uses no labels; `--pooler action` shows the other. The
reference is the same pipeline in the shuffled world: what is gained there is not procedure.
Stages already run are taken from the run-cache, so the command can be stopped and repeated.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import dvc.api
import typer

from pjepa.ui.console import say

GAIN = "pjepa - raw"


def experiment_report(seed: int, order: str, pooler: str) -> dict[str, Any]:
    """Return report.json of one experiment; stages that ran before come from the run-cache."""
    name = f"proof-{pooler}-{order}-{seed}"
    say(f"proof: {name}")
    if found_revision(name):  # DVC does not write over a name, and its --force runs every stage
        subprocess.run([sys.executable, "-m", "dvc", "exp", "remove", "--quiet", name], check=True)
    command = [
        sys.executable, "-m", "dvc", "exp", "run", "--temp", "--name", name,
        "-S", f"data.seed={seed}", "-S", f"data.order={order}", "-S", f"pooler.kind={pooler}",
    ]  # fmt: skip
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    revision = found_revision(name)
    if not revision:
        raise SystemExit(f"error: no experiment {name}; see the messages above")
    return dict(json.loads(dvc.api.read("results/report/report.json", rev=revision)))


def found_revision(name: str) -> str:
    """Return the commit of an experiment that starts from HEAD, or nothing."""
    head = _git("rev-parse", "HEAD")
    return _git("for-each-ref", "--format=%(objectname)", f"refs/exps/{head[:2]}/{head[2:]}/{name}")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def claim_rows(reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per claim: median value, median interval, seeds whose interval is above 0."""
    rows = []
    for number, claim in enumerate(reports[0]["demo"]["claims"]):
        same = [report["demo"]["claims"][number] for report in reports]
        row = {key: claim[key] for key in ("what", "unit", "needed")}
        row["values"] = [c["value"] for c in same]
        row["median"] = median(row["values"])
        if claim["interval"]:
            row["interval"] = [median(c["interval"][end] for c in same) for end in ("low", "high")]
            row["above_zero"] = sum(c["interval"]["low"] > 0 for c in same)
        rows.append(row)
    return rows


def accuracy_rows(reports: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return median accuracy and edit score of every representation, and the ceilings."""
    cells = [report["cells"]["linear"] for report in reports]
    rows = {
        name: {
            metric: round(median(c[name]["metrics"][metric] for c in cells), 2)
            for metric in ("acc", "acc_bg", "edit", "f1_50")
        }
        for name in cells[0]
    }
    for ceiling in ("appearance", "history"):
        values = [report["demo"]["ceilings"][ceiling] for report in reports]
        rows[f"ceiling: {ceiling}"] = {"acc": round(median(values), 2)}
    return rows


def verdict(row: dict[str, Any], seeds: int) -> str:
    """Return whether the median keeps the promise and the interval excludes 0 in most worlds."""
    if row["needed"] is None:
        return ""
    kept = row["median"] >= row["needed"] and row.get("above_zero", seeds) > seeds / 2
    return "holds" if kept else "does not hold"


def markdown(summary: dict[str, Any]) -> str:
    """Return the tables of the proof as Markdown."""
    lines = ["Medians over worlds (`data.seed`), test split, linear probe to convergence.", ""]
    for order, part in summary["orders"].items():
        seeds = part["seeds"]
        lines += [
            f"**{order}**, {seeds} worlds",
            "",
            "| representation | acc | acc_bg | edit | f1_50 |",
        ]
        lines.append("|---|---|---|---|---|")
        for name, row in part["accuracy"].items():
            cells = [
                f"{row[m]:.1f}" if m in row else "" for m in ("acc", "acc_bg", "edit", "f1_50")
            ]
            lines.append(f"| {name} | {' | '.join(cells)} |")
        lines += [
            "",
            "| claim | median | 95 % interval | above 0 | needed | |",
            "|---|---|---|---|---|---|",
        ]
        for row in part["claims"]:
            span = row.get("interval")
            interval = f"{span[0]:+.1f} to {span[1]:+.1f}" if span else ""
            above = f"{row['above_zero']}/{seeds}" if span else ""
            needed = "" if row["needed"] is None else f"{row['needed']:g}"
            lines.append(
                f"| {row['what']} | {row['median']:.1f} {row['unit']} | {interval} | {above} "
                f"| {needed} | {verdict(row, seeds)} |"
            )
        lines.append("")
    gains = summary["gain"]
    lines.append(
        f"Gain of pjepa over raw: {gains['procedure']:.1f} points with procedures, "
        f"{gains['shuffled']:.1f} shuffled{_fall(gains)}."
    )
    return "\n".join(lines) + "\n"


def proof_summary(reports: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return the proof's numbers from the reports of every order's worlds."""
    orders: dict[str, dict[str, Any]] = {
        order: {
            "seeds": len(found),
            "accuracy": accuracy_rows(found),
            "claims": claim_rows(found),
        }
        for order, found in reports.items()
    }
    gain = {
        order: next(row["median"] for row in part["claims"] if row["what"] == GAIN)
        for order, part in orders.items()
    }
    return {"orders": orders, "gain": gain}


def _fall(gains: dict[str, float]) -> str:
    if gains["procedure"] <= 0:
        return ": there is no gain to lose"
    half = gains["shuffled"] < 0.5 * gains["procedure"]
    return f": it falls by {'more' if half else 'less'} than half"


def main(
    seeds: Annotated[int, typer.Option(help="Worlds to run, from seed 0 on.", min=1)] = 5,
    shuffled: Annotated[int, typer.Option(help="Shuffled worlds to run.", min=1)] = 5,
    pooler: Annotated[str, typer.Option(help="`pooler.kind` of all worlds.")] = "mean",
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the numbers.")
    ] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", help="Also write this.")
    ] = None,
) -> None:
    """Run and print the proof."""
    worlds = {"procedure": seeds, "shuffled": shuffled}
    summary = proof_summary(
        {
            order: [experiment_report(seed, order, pooler) for seed in range(count)]
            for order, count in worlds.items()
        }
    )
    print(markdown(summary))
    if json_file:
        json_file.write_text(json.dumps(summary, indent=2) + "\n")
    if markdown_file:
        markdown_file.write_text(markdown(summary))


if __name__ == "__main__":
    typer.run(main)
