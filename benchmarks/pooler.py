"""Training the action pooler from disk: `python -m benchmarks.pooler [--json FILE]`.

Synthetic takes of 7 x 7 patches of 192 channels and a pooler without self-attention: as little
computation per byte read as there can be, so real poolers wait less. Measured:

- the share of an epoch spent waiting for data, with as many readers as `machine.workers` defaults
  to. The reference reads the same windows where they are needed, nothing ahead;
- the memory a run adds, for a data set and for one several times larger. The reference loads takes
  whole, as scripts do that keep features in a list.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer

from benchmarks.workers import Table, Work, Worker, row
from pjepa.patches.config import PatchesConfig
from pjepa.patches.store import PatchInfo, patch_writer, read_patches, take_file_name
from pjepa.pooler.config import PoolerConfig
from pjepa.pooler.takes import LabelledPatches, clip_batches, epoch_clips
from pjepa.pooler.train import Fit, PoolerEpochs, PoolerTask, PoolerWithClassifier
from pjepa.storage.saver import Saver

STEPS, GRID, WIDTH, CLASSES = 240, 7, 192, 20
CONFIG = PoolerConfig(
    kind="action", window=16, depth=1, heads=6, target="frame", scope="take", batch_windows=8,
    threads=1,
)  # fmt: skip


def patch_info() -> PatchInfo:
    """Return what the synthetic patches claim to be."""
    from pjepa.patches.backbone import backbone_facts
    from pjepa.patches.encode import patch_info as described

    settings = PatchesConfig(backbone="vjepa2_1_vit_tiny", checkpoint="random", grid=GRID)
    return replace(described(settings, backbone_facts(settings)), width=WIDTH)


def written_takes(folder: Path, count: int) -> list[LabelledPatches]:
    """Return `count` takes of noise on disk, one minute each."""
    info, takes = patch_info(), []
    for number in range(count):
        rng = np.random.default_rng(number)
        file = folder / take_file_name(f"t{number}")
        if not file.exists():
            with patch_writer(file, info, STEPS) as writer:
                writer.append(rng.normal(size=(STEPS, GRID**2, WIDTH)).astype(np.float16))
        segment = np.arange(STEPS) // 20
        labels = rng.integers(CLASSES, size=STEPS // 20)[segment]
        takes.append(LabelledPatches(number, f"t{number}", f"g{number}", file, segment, labels))
    return takes


def new_fit(takes: Sequence[LabelledPatches]) -> Fit:
    torch.manual_seed(0)
    task = PoolerTask(CONFIG, patch_info(), CLASSES)
    return Fit(PoolerWithClassifier(task.shape, CONFIG, CLASSES), takes, (), CONFIG, 1)


def waiting(takes: Sequence[LabelledPatches]) -> tuple[float, float]:
    """Return the share of an epoch spent waiting: ours, and reading each window when needed."""
    fit, state = new_fit(takes), PoolerEpochs()
    started = time.monotonic()
    fit.epoch(state, Saver(None, dict))
    ours = fit.waited / (time.monotonic() - started)
    fit, state = new_fit(takes), PoolerEpochs()
    read, started = 0.0, time.monotonic()
    batches = clip_batches(epoch_clips(takes, CONFIG, 0), CONFIG.batch_windows, 1)
    while True:
        asked = time.monotonic()
        batch = next(batches, None)
        read += time.monotonic() - asked
        if batch is None:
            return ours, read / (time.monotonic() - started)
        fit.step(batch, CONFIG.lr, state)
        state.step += 1


def ours_epoch(folder: Path, count: int) -> Work:
    """Return an epoch from the memory-mapped files, model built before."""
    fit = new_fit(written_takes(folder, count))
    return lambda: fit.epoch(PoolerEpochs(), Saver(None, dict))


def loaded_epoch(folder: Path, count: int) -> Work:
    """Return the same epoch after loading every take whole."""
    takes = written_takes(folder, count)
    fit = new_fit(takes)

    def work() -> None:
        whole = {take.take_id: np.array(read_patches(take.file).patches) for take in takes}
        fit.epoch(PoolerEpochs(), Saver(None, dict))
        del whole

    return work


def added_memory(build: object, folder: Path, count: int) -> float:
    """Return the peak MB that one epoch adds to a fresh process."""
    worker = Worker(build, folder, count)  # type: ignore[arg-type]
    _, peak, _ = worker.measure()
    worker.stop()
    return peak


def main(
    takes: Annotated[int, typer.Option(help="Takes of one minute.", min=1)] = 12,
    larger: Annotated[int, typer.Option(help="How many times larger the second set is.")] = 4,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Also write the numbers.")
    ] = None,
) -> None:
    """Print one row per case."""
    torch.set_num_threads(CONFIG.threads)
    table = Table()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written_takes(folder, takes * larger)
        ours, reference = waiting(written_takes(folder, takes))
        table.add("waiting for data, share of an epoch", row(100 * ours, 100 * reference, "%"))
        for count in (takes, takes * larger):
            found = [added_memory(build, folder, count) for build in (ours_epoch, loaded_epoch)]
            table.add(f"memory added by an epoch, {count} takes", row(found[0], found[1], "MB"))
    table.save(json_file)


if __name__ == "__main__":
    typer.run(main)
