"""`curve`: the linear probe on snapshots of pretraining, for information only."""

from pathlib import Path

from pjepa.core.runs import evenly
from pjepa.core.section import read_section
from pjepa.select.config import CurveConfig
from pjepa.select.curve import ProbeCurve, write_curve
from pjepa.select.selection import NothingToJudge, probe_curve, read_judge
from pjepa.storage.reading import content_sha256, fingerprint
from pjepa.storage.work import work_folder
from pjepa.tools import paths
from pjepa.tools.stage import stage_main
from pjepa.ui.console import say


def run() -> None:
    config = read_section(CurveConfig, "curve")
    snapshots = sorted(paths.SNAPSHOTS.glob("[0-9]*"), key=lambda path: int(path.name))
    if reason := why_none(evenly(snapshots, config.snapshots), config):
        write_curve(ProbeCurve(why_not=reason), paths.CURVE)
        say(f"curve: none, {reason}")


def why_none(snapshots: list[Path], config: CurveConfig) -> str | None:
    """Write the curve and return None, or return why there is none."""
    if not config.snapshots:
        return "curve.snapshots is 0"
    if len(snapshots) < 2:
        return "pretraining left fewer than two snapshots to score"
    files = (paths.STREAM, paths.LABELS, paths.TAKES_TABLE, paths.CLASSES)
    try:
        judge = read_judge(files, "holdout", "acc", config, config.takes)
    except NothingToJudge:
        return "there are no labels of train takes and of held-out train groups"
    inputs = (*files, *snapshots)  # so that queued experiments do not share work
    key = fingerprint(config.resume_key(), [content_sha256(path) for path in inputs])
    with work_folder("curve", key) as work:
        write_curve(probe_curve(snapshots, judge, work), paths.CURVE)
    return None


if __name__ == "__main__":
    stage_main(run)
