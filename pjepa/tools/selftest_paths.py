"""The real paths of `pjepa selftest`: a miniature of each, on the device and on the CPU.

Extraction of a window, statistics, an epoch of pretraining, a probe fit and a stream, as the stages
call them: a tensor left on the wrong device ends here and not in a user's first run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from pjepa.core.machine import Stream
from pjepa.encoder.encoder import ProcedureEncoder
from pjepa.patches.backbone import load_backbone
from pjepa.patches.config import PatchesConfig
from pjepa.patches.encode import encoded_batch
from pjepa.pretrain.config import PjepaConfig
from pjepa.pretrain.loop import pretrain
from pjepa.pretrain.takes.take import TrainingTake
from pjepa.probes.base.scoring import LabelledTake
from pjepa.probes.linear.config import LinearConfig
from pjepa.probes.linear.probe import fit_converged

CLASSES, SEGMENT, D_IN = 3, 12, 24
STREAMS: tuple[Stream, ...] = ("device", "host", "file")


def path_errors(device: str) -> dict[str, float]:
    """Return the largest difference from the CPU by path: losses and features of unit size."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        here = pretrained("cpu", "auto", folder / "cpu")
        errors = {
            f"pretrain, stream: {kind}": _distance(here, pretrained(device, kind, folder / kind))
            for kind in STREAMS
        }
        paths: dict[str, Callable[[str], np.ndarray]] = {
            "patches": extracted,
            "linear": fitted,
            "stream": lambda place: streamed(folder / "cpu" / "out" / "00001", place),
        }
        return errors | {name: _distance(path("cpu"), path(device)) for name, path in paths.items()}


def _distance(here: np.ndarray, there: np.ndarray) -> float:
    return float(np.abs(here - there).max())


def miniature(number: int) -> TrainingTake:
    """Return a take of four segments around a style of its own."""
    rng = np.random.default_rng(number)
    features = rng.normal(size=(4 * SEGMENT, D_IN)) + rng.normal(size=D_IN)
    segment = np.repeat(np.arange(4), SEGMENT)
    return TrainingTake(number, f"take-{number}", features.astype(np.float16), segment)


def pretrained(device: str, stream: Stream, folder: Path) -> np.ndarray:
    """Return the losses of an epoch: statistics, steps, snapshot and log.

    The model is the paper's with 2 of its 16 heads, of 88 channels like those.
    """
    config = PjepaConfig(
        width=176, heads=2, predictor_heads=2, epochs=1, batch_tokens=2 * 4 * SEGMENT,
        accumulate=2, neighbours=(-1, 1), device=device, stream=stream,
    )  # fmt: skip
    log: list[dict[str, float]] = []
    takes = [miniature(number) for number in range(6)]
    pretrain(takes, config, folder / "work", folder / "out", log.append)
    return np.array([log[0]["loss"], log[0]["neighbour_loss"], log[0]["target_std"]])


def extracted(device: str) -> np.ndarray:
    """Return patch features of one window of noise by a small V-JEPA 2.1 with random weights."""
    config = PatchesConfig(
        backbone="vjepa2_1_vit_tiny", checkpoint="random", crop=32, frames_per_window=8,
        device=device,
    )  # fmt: skip
    frames = np.random.default_rng(0).integers(0, 256, (8, 48, 64, 3), dtype=np.uint8)
    backbone = load_backbone(config)
    window = backbone.prepared(frames)[None]  # [1, 3, T, crop, crop]
    return encoded_batch(backbone, window, config).array().astype(np.float32)


def fitted(device: str) -> np.ndarray:
    """Return probabilities of a linear probe fitted to convergence."""
    takes = [miniature(number) for number in range(3)]
    labelled = [LabelledTake(t.features.astype(np.float32), t.segment % CLASSES) for t in takes]
    probe = fit_converged(labelled, [], CLASSES, LinearConfig(l2=(1e-1,)), device)
    return probe.predict(labelled[0].features)


def streamed(folder: Path, device: str) -> np.ndarray:
    """Return features of a take pushed segment by segment."""
    stream = ProcedureEncoder.from_pretrained(folder, device).eval().stream()
    tokens = miniature(9).features.astype(np.float32)
    parts = [stream.push(part) for part in np.split(tokens, 4)]
    return np.concatenate([part.cpu().numpy() for part in parts])
