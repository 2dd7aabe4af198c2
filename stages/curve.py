"""`curve`: the linear probe on snapshots of pretraining, for people. Nothing is chosen by it."""

from pathlib import Path

from pjepa import paths
from pjepa.config.curve import CurveConfig
from pjepa.config.section import read_section
from pjepa.config.select import SelectConfig
from pjepa.probes.curve import evenly, probe_curve, thinned
from pjepa.probes.curve_file import ProbeCurve, write_curve
from pjepa.probes.selection import NothingToJudge, read_judge
from pjepa.progress import say
from pjepa.stage import stage_main
from pjepa.work import content_sha256, fingerprint, work_folder


def run() -> None:
    config = read_section(CurveConfig, "curve")
    snapshots = sorted(paths.SNAPSHOTS.glob("[0-9]*"), key=lambda path: int(path.name))
    curve = found_curve(evenly(snapshots, config.snapshots), config)
    write_curve(curve, paths.CURVE)
    if curve.why_not:
        say(f"curve: none, {curve.why_not}")


def found_curve(snapshots: list[Path], config: CurveConfig) -> ProbeCurve:
    """The curve, or why there is none."""
    if not config.snapshots:
        return ProbeCurve(why_not="curve.snapshots is 0")
    if len(snapshots) < 2:
        return ProbeCurve(why_not="pretraining left fewer than two snapshots to score")
    files = (paths.STREAM, paths.LABELS, paths.TAKES_TABLE, paths.CLASSES)
    judging = SelectConfig(by="holdout", l2=config.l2, threads=config.threads, device=config.device)
    try:
        judge = read_judge(*files, judging)
    except NothingToJudge:
        return ProbeCurve(why_not="there are no labels of train takes and of held-out train groups")
    inputs = (*files, *snapshots)  # queued experiments judge their own, side by side
    key = fingerprint(config.model_dump(), [content_sha256(path) for path in inputs])
    with work_folder("curve", key) as work:
        return probe_curve(snapshots, thinned(judge, config.takes), work)


if __name__ == "__main__":
    stage_main(run)
