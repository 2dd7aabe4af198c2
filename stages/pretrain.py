"""`pretrain`: P-JEPA on the token stream (paper Sec. 3.2). No label is read, as `deps` show."""

from __future__ import annotations

from contextlib import nullcontext

from pjepa.core.section import read_section
from pjepa.core.tables import pretraining_takes, read_takes
from pjepa.nn.fit import live_log, no_log
from pjepa.pretrain import team
from pjepa.pretrain.config import PjepaConfig
from pjepa.pretrain.data import read_training_takes
from pjepa.pretrain.loop import pretrain
from pjepa.storage.reading import content_sha256, fingerprint
from pjepa.storage.work import work_folder
from pjepa.streams.stream import StreamReader
from pjepa.tools import paths
from pjepa.tools.stage import stage_main
from pjepa.ui.console import say


def run() -> None:
    """Train in this process, or start a team of them; its leader writes."""
    config = read_section(PjepaConfig, "pjepa")
    if config.processes > 1 and not team.launched():
        team.launch("stages.pretrain", config)
        return
    selected = pretraining_takes(read_takes(paths.TAKES_TABLE))
    key = fingerprint(config.resume_key(), content_sha256(paths.STREAM), sorted(selected))
    with team.joined(config) as config, team.folder(work_folder("pretrain", key)) as work:
        stream = StreamReader(paths.STREAM)
        with team.leader_first():
            takes = read_training_takes(stream, selected, work / "features.raw")
        if team.leads():
            tokens = sum(len(take.features) for take in takes)
            say(f"pretrain: {len(takes)} takes, {tokens} tokens of {stream.info.width} channels")
        with live_log(paths.PRETRAIN_RESULTS) if team.leads() else nullcontext(no_log) as log:
            pretrain(takes, config, work, paths.SNAPSHOTS, log)


if __name__ == "__main__":
    stage_main(run)
