"""`patches`: videos -> V-JEPA 2.1 patch features, one file per take."""

from dataclasses import asdict

from pjepa import paths
from pjepa.backbones.checkpoint import RANDOM
from pjepa.backbones.extract import extract
from pjepa.backbones.store import link_take, write_skipped
from pjepa.config.patches import PatchesConfig
from pjepa.config.section import read_section
from pjepa.executors.chosen import chosen_executor
from pjepa.progress import say
from pjepa.stage import stage_main
from pjepa.takes.manifest import read_boundaries, read_videos
from pjepa.work import whole_folder, work_root, write_json


def run() -> None:
    """Encodes what the store lacks and links every take into `data/patches`."""
    config = read_section(PatchesConfig, "patches")
    if config.checkpoint == RANDOM:
        say(f"patches: {config.backbone} has RANDOM weights (seed {config.seed}), not trained ones")
    rows = read_videos(paths.VIDEOS_TABLE)
    boundaries = read_boundaries(paths.BOUNDARIES_TABLE)
    store = work_root() / "store" / "patches"
    result = extract(rows, boundaries, config, store, chosen_executor(config))
    say(f"patches: {len(rows)} takes, {result.encoded} encoded now")
    say_skipped(result.skipped)
    with whole_folder(paths.PATCHES) as folder:
        for take_id, file in result.files.items():
            link_take(file, folder, take_id)
        write_json(folder / "config.json", asdict(result.info))
        write_skipped(folder, result.skipped)


def say_skipped(skipped: dict[str, str]) -> None:
    """The list at the end: what was left out, and why."""
    if skipped:
        say(f"patches: {len(skipped)} takes were left out (patches.on_error=skip):")
    for take_id, reason in skipped.items():
        say(f"  {take_id}: {reason}")


if __name__ == "__main__":
    stage_main(run)
