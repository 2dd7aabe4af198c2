"""`pretrain`: P-JEPA on the token stream (paper Sec. 3.2). No label is read, as `deps` show."""

from __future__ import annotations

from pjepa import paths
from pjepa.config.pjepa import PjepaConfig
from pjepa.config.section import read_section
from pjepa.progress import say
from pjepa.stage import stage_main
from pjepa.streams.store import StreamReader
from pjepa.takes.manifest import pretraining_takes, read_takes
from pjepa.training.data import read_training_takes
from pjepa.training.log import live_log
from pjepa.training.loop import pretrain
from pjepa.work import file_sha256, fingerprint, work_folder


def run() -> None:
    config = read_section(PjepaConfig, "pjepa")
    stream = StreamReader(paths.STREAM)
    wanted = pretraining_takes(read_takes(paths.TAKES_TABLE))
    takes = read_training_takes(stream, wanted)
    tokens = sum(len(take.features) for take in takes)
    say(f"pretrain: {len(takes)} takes, {tokens} tokens of {stream.info.width} channels")
    key = fingerprint(config.model_dump(), file_sha256(paths.STREAM), sorted(wanted))
    with work_folder("pretrain", key) as work, live_log(paths.PRETRAIN_RESULTS) as log:
        pretrain(takes, config, work, paths.SNAPSHOTS, log)


if __name__ == "__main__":
    stage_main(run)
