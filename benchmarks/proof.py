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

from pjepa.core.text import markdown_table
from pjepa.storage.writing import write_json
from pjepa.ui.console import say

GAIN = "pjepa - raw"
METRICS = ("acc", "acc_bg", "edit", "f1_50")


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
    for same in zip(*(report["demo"]["claims"] for report in reports), strict=True):
        row = {key: same[0][key] for key in ("what", "unit", "needed")}
        row["values"] = [claim["value"] for claim in same]
        row["median"] = median(row["values"])
        spans = [claim["interval"] for claim in same]
        if spans[0]:
            row["interval"] = [median(span[end] for span in spans) for end in ("low", "high")]
            row["above_zero"] = sum(span["low"] > 0 for span in spans)
        rows.append(row)
    return rows


def accuracy_rows(reports: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return median scores of every representation, and the ceilings."""
    cells = [report["cells"]["linear"] for report in reports]
    rows = {
        name: {m: round(median(c[name]["metrics"][m] for c in cells), 2) for m in METRICS}
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


def proof_summary(reports: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return the proof's numbers from the reports of every order's worlds."""
    orders = {
        order: {"seeds": len(mine), "accuracy": accuracy_rows(mine), "claims": claim_rows(mine)}
        for order, mine in reports.items()
    }
    gains = {
        order: next(row["median"] for row in claim_rows(mine) if row["what"] == GAIN)
        for order, mine in reports.items()
    }
    return {"orders": orders, "gain": gains}


def markdown(summary: dict[str, Any]) -> str:
    """Return the tables of the proof as Markdown."""
    parts = ["Medians over worlds (`data.seed`), test split, linear probe to convergence."]
    for order, numbers in summary["orders"].items():
        seeds = numbers["seeds"]
        scores = [
            [name, *(f"{row[m]:.1f}" if m in row else "" for m in METRICS)]
            for name, row in numbers["accuracy"].items()
        ]
        claims = []
        for row in numbers["claims"]:
            line = [row["what"], f"{row['median']:.1f} {row['unit']}", "", "", "", ""]
            if "interval" in row:
                low, high = row["interval"]
                line[2:4] = [f"{low:+.1f} to {high:+.1f}", f"{row['above_zero']}/{seeds}"]
            if row["needed"] is not None:
                line[4:] = [f"{row['needed']:g}", verdict(row, seeds)]
            claims.append(line)
        head = ["claim", "median", "95 % interval", "above 0", "needed", ""]
        parts += [f"**{order}**, {seeds} worlds", markdown_table(["", *METRICS], scores)]
        parts.append(markdown_table(head, claims))
    kept, shuffled = summary["gain"]["procedure"], summary["gain"]["shuffled"]
    fall = f"it falls by {'more' if shuffled < 0.5 * kept else 'less'} than half"
    parts.append(
        f"Gain of pjepa over raw: {kept:.1f} points with procedures, {shuffled:.1f} shuffled: "
        f"{fall if kept > 0 else 'there is no gain to lose'}."
    )
    return "\n\n".join(parts) + "\n"


def main(
    seeds: Annotated[int, typer.Option(help="Worlds to run, from seed 0 on.", min=1)] = 5,
    shuffled: Annotated[int, typer.Option(help="Shuffled worlds to run.", min=1)] = 5,
    pooler: Annotated[str, typer.Option(help="`pooler.kind` of all worlds.")] = "mean",
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the numbers.")
    ] = None,
) -> None:
    """Run and print the proof."""
    reports = {
        order: [experiment_report(seed, order, pooler) for seed in range(worlds)]
        for order, worlds in (("procedure", seeds), ("shuffled", shuffled))
    }
    summary = proof_summary(reports)
    print(markdown(summary))
    if json_file:
        write_json(json_file, summary)


if __name__ == "__main__":
    typer.run(main)
