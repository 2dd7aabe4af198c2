"""`pretrain`: P-JEPA on the token stream (paper Sec. 3.2). No label is read, as `deps` show."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from pjepa.core.section import read_section
from pjepa.core.tables import pretraining_takes, read_takes
from pjepa.nn.fit import live_log, no_log
from pjepa.pretrain.config import PjepaConfig
from pjepa.pretrain.data import TrainingTake, read_training_takes
from pjepa.pretrain.loop import pretrain
from pjepa.storage.reading import content_sha256, fingerprint
from pjepa.storage.work import work_folder
from pjepa.streams.stream import StreamReader
from pjepa.tools import paths
from pjepa.tools.stage import stage_main
from pjepa.ui.console import say


def run() -> None:
    config = read_section(PjepaConfig, "pjepa")
    if config.processes > 1:
        run_many(config)
        return
    with (
        work_folder("pretrain", work_key(config)) as work,
        live_log(paths.PRETRAIN_RESULTS) as log,
    ):
        pretrain(takes_to_train(work), config, work, paths.SNAPSHOTS, log)


def run_many(config: PjepaConfig) -> None:
    """Start the processes, or run as one of them; the first one writes."""
    from pjepa.pretrain.team import launch, launched, ranks

    if not launched():
        launch("stages.pretrain", config)
        return
    key = work_key(config)
    with ranks(config.device) as team, team.folder(work_folder("pretrain", key)) as work:
        with team.first():
            takes = takes_to_train(work, quiet=not team.lead)
        config = config.model_copy(update={"device": team.device})
        with live_log(paths.PRETRAIN_RESULTS) if team.lead else nullcontext(no_log) as log:
            pretrain(takes, config, work, paths.SNAPSHOTS, log, team)


def work_key(config: PjepaConfig) -> str:
    wanted = pretraining_takes(read_takes(paths.TAKES_TABLE))
    return fingerprint(config.resume_key(), content_sha256(paths.STREAM), sorted(wanted))


def takes_to_train(work: Path, quiet: bool = False) -> list[TrainingTake]:
    stream = StreamReader(paths.STREAM)
    wanted = pretraining_takes(read_takes(paths.TAKES_TABLE))
    takes = read_training_takes(stream, wanted, work / "features.arrow")
    if not quiet:
        tokens = sum(len(take.features) for take in takes)
        say(f"pretrain: {len(takes)} takes, {tokens} tokens of {stream.info.width} channels")
    return takes


if __name__ == "__main__":
    stage_main(run)
