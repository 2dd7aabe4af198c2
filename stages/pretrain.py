"""`pretrain`: P-JEPA on the token stream (paper Sec. 3.2). No label is read, as `deps` show."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

from pjepa import paths
from pjepa.config.pjepa import PjepaConfig
from pjepa.config.section import read_section
from pjepa.progress import say
from pjepa.stage import stage_main
from pjepa.streams.store import StreamReader
from pjepa.takes.manifest import pretraining_takes, read_takes
from pjepa.training.data import TrainingTake, read_training_takes
from pjepa.training.log import live_log
from pjepa.training.loop import pretrain
from pjepa.work import content_sha256, fingerprint, work_folder


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
    """Starts the processes, or is one of them; the first one writes."""
    from pjepa.training.distributed import launch, launched, ranks

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
    return fingerprint(config.model_dump(), content_sha256(paths.STREAM), sorted(wanted))


def takes_to_train(work: Path, quiet: bool = False) -> list[TrainingTake]:
    stream = StreamReader(paths.STREAM)
    wanted = pretraining_takes(read_takes(paths.TAKES_TABLE))
    takes = read_training_takes(stream, wanted, work / "features.arrow")
    if not quiet:
        tokens = sum(len(take.features) for take in takes)
        say(f"pretrain: {len(takes)} takes, {tokens} tokens of {stream.info.width} channels")
    return takes


def no_log(entry: dict[str, float]) -> None:
    """What the other processes do with an epoch's numbers."""


if __name__ == "__main__":
    stage_main(run)
