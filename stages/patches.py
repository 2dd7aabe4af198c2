"""`patches`: videos -> V-JEPA 2.1 patch features, one file per take."""

from dataclasses import asdict

from pjepa.core.section import read_section
from pjepa.core.tables import SHIPPED, FeatureInfo, read_boundaries, read_feature_info, read_videos
from pjepa.patches.checkpoint import RANDOM
from pjepa.patches.config import PatchesConfig
from pjepa.patches.extract import extract
from pjepa.patches.local import chosen_executor
from pjepa.patches.store import CUTS, REPEATED, SKIPPED, link_take
from pjepa.storage.work import work_root
from pjepa.storage.writing import atomic_folder, write_json
from pjepa.tools import paths
from pjepa.tools.stage import stage_main
from pjepa.ui.console import say


def run() -> None:
    """Encode what the store lacks and link every take into `data/patches`."""
    features = read_feature_info(paths.VIDEOS_TABLE)
    if features is not None:
        write_shipped(features)
        return
    config = read_section(PatchesConfig, "patches")
    if config.checkpoint == RANDOM:
        say(f"patches: {config.backbone} has RANDOM weights (seed {config.seed}), not trained ones")
    rows = read_videos(paths.VIDEOS_TABLE)
    boundaries = read_boundaries(paths.BOUNDARIES_TABLE)
    store = work_root() / "store" / "patches"
    result = extract(rows, boundaries, config, store, chosen_executor(config))
    say(f"patches: {len(rows)} takes, {result.encoded} encoded now")
    repeated = {take: notes.repeated for take, notes in result.notes.items() if notes.repeated}
    cuts = {take: notes.jumps_s for take, notes in result.notes.items() if notes.jumps_s}
    say_skipped(result.skipped)
    say_repeated(repeated)
    with atomic_folder(paths.PATCHES) as folder:
        for take_id, file in result.files.items():
            link_take(file, folder, take_id)
        write_json(folder / "config.json", asdict(result.info))
        write_json(folder / SKIPPED, result.skipped)
        for name, noted in ((REPEATED, repeated), (CUTS, cuts)):
            if noted:
                write_json(folder / name, noted)


def say_skipped(skipped: dict[str, str]) -> None:
    """Print which takes were left out, and why."""
    if skipped:
        say(f"patches: {len(skipped)} takes were left out (patches.on_error=skip):")
    for take_id, reason in skipped.items():
        say(f"  {take_id}: {reason}")


def say_repeated(repeated: dict[str, int]) -> None:
    """Print which takes have repeated frames in place of undecodable ones."""
    if repeated:
        say(f"patches: frames are repeated in {len(repeated)} takes (patches.on_error=repeat):")
    for take_id, frames in repeated.items():
        say(f"  {take_id}: {frames} frames cannot be decoded, replaced by the one before")


def write_shipped(features: FeatureInfo) -> None:
    """Write empty outs: the data set ships frame features, so there is nothing to encode."""
    with atomic_folder(paths.PATCHES) as folder:
        write_json(folder / "config.json", {"kind": SHIPPED, **asdict(features)})
    say(f"patches: the takes ship features ({features.name}): nothing to encode")


if __name__ == "__main__":
    stage_main(run)
