"""Videos of takes: the one way to open them, and what the keys of their stored features hold.

A key has the video's content hash and the behaviour of the code. Entries of the store cost hours of
a GPU, so an edit that changes nothing must keep them, one that changes features must not: a clip
made by a formula is sampled, prepared and encoded by a tiny encoder whose weights are made by a
formula too, on the CPU, and the result is compared within a tolerance. A changed mean is another
behaviour; a refactoring, a comment or another CPU is not. Decoding is not part of it: tests compare
the readers with each other.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pjepa.core.tables import MAX_GAP_S
from pjepa.core.time import Sampling, frame_indices
from pjepa.patches.backbone import Backbone, load_backbone
from pjepa.patches.config import TIMM, PatchesConfig
from pjepa.patches.preprocess import Uint8
from pjepa.storage.reading import file_sha256, fingerprint, read_json
from pjepa.storage.sealed import remembered_hashes
from pjepa.storage.writing import write_json
from pjepa.ui.console import InputError
from pjepa.video.reader import Reader, open_video

REMEMBERED = "videos.json"  # in the store, outside every artifact
KNOWN = "behaviours.json"  # in the store: name -> values
TOLERANCE = 1e-3  # one pixel rounded the other way moves a value by a quarter of it
FIRST = 1  # the behaviour below; store keys had this number before they knew behaviours
TIMM_MODEL = f"{TIMM}test_vit"
FRAMES, HEIGHT, WIDTH = 40, 48, 72
LOUDER = 5.0  # features change less than pixels do
REFERENCE: dict[str, tuple[float, ...]] = {
    "vjepa": (
        48, 8850, 110.125, 114, 18621, 236.75, 0.08471, 0.18106,
        -0.38231, -0.30961, 0.42282, 0.42717, 0.12969, 0.39804, -0.30409, -0.41849,
        0.40447, 0.41936, 2.74738, 3.07313, 2.94593, 0.74362, 3.20674, 3.4738,
        2.31637, 5.08476, 2.74772, -0.26339, 3.92515, 2.77008, 3.88749, 5.94044,
        1.58478, 1.41453, 2.39019, 2.93202, 4.72457, -0.02345, 2.74307, 2.11738,
        1.32444, 3.19636, 3.95796, 0.96203, 0.08614, 0.18274, -0.38006, -0.30737,
        0.42426, 0.42894, 0.13124, 0.39966, -0.30203, -0.41639, 0.40626, 0.42097,
        2.74579, 3.0772, 2.9426, 0.74327, 3.20714, 3.47621, 2.31542, 5.08699,
        2.74553, -0.26068, 3.92546, 2.7666, 3.89142, 5.9299, 1.59603, 1.40647,
        2.3941, 2.93042, 4.7233, -0.01766, 2.74457, 2.11853, 1.31954, 3.19823,
        3.96019, 0.96163,
    ),
    "timm": (
        48, 8850, 110.125, 114, 18621, 236.75, 0.01606, 0.0806,
        -0.19366, -0.17408, -0.02449, -0.0082, 0.00485, 0.13017, -0.16135, -0.19714,
        -0.02677, -0.01392, 3.327, 3.24576, 0.7964, 1.05707, 3.55153, 2.8739,
        0.89421, 4.98684, 2.72869, 3.22777, 3.59894, 0.47295, 1.2709, 3.84527,
        4.29815, 2.17125, 3.5621, 0.65247, 0.66967, 3.87481, 1.78747, 2.63098,
        2.72347, 2.98576, 2.12574,
    ),
}  # fmt: skip


def open_take(path: Path, config: PatchesConfig, max_gap_s: float = MAX_GAP_S) -> Reader:
    """Return the video as every stage and tool reads it."""
    return open_video(path, config.reader, max_gap_s, config.on_error == "repeat")


def video_hashes(paths: list[Path], store: Path, config: PatchesConfig) -> list[str]:
    """Return sha256 of every video; a terabyte takes half an hour, so they are remembered."""
    what = "patches: hash videos"
    return remembered_hashes(paths, store / REMEMBERED, file_sha256, config.workers, what)


def behaviour(store: Path, config: PatchesConfig) -> int | str:
    """Return the name of the present code's behaviour in this store; record a new one."""
    family = "timm" if config.backbone.startswith(TIMM) else "vjepa"
    found = canned_values(family)
    if _alike(found, REFERENCE.get(family, ())):
        return FIRST
    known = _known(store / KNOWN)
    for name, values in known.items():
        if _alike(found, values):
            return name
    name = f"{family}-{fingerprint([round(value, 3) for value in found])}"
    write_json(store / KNOWN, {**known, name: found})
    return name


def _alike(found: tuple[float, ...], other: tuple[float, ...] | list[float]) -> bool:
    same = len(found) == len(other)
    return same and bool(np.abs(np.subtract(found, other)).max() <= TOLERANCE)


def _known(file: Path) -> dict[str, list[float]]:
    try:
        return dict(read_json(file)) if file.exists() else {}
    except (InputError, ValueError, TypeError):
        return {}  # entries under a lost name are encoded again


@lru_cache
def canned_values(family: str) -> tuple[float, ...]:
    """Return about fifty numbers that sampling, preprocessing and encoding make of a clip."""
    values = [*_sampled_values()]
    clip = canned_clip()
    for resampler in ("cv2", "antialias") if family == "vjepa" else ("cv2",):
        config = PatchesConfig.model_validate(
            {
                "backbone": "vjepa2_1_vit_tiny" if family == "vjepa" else TIMM_MODEL,
                "checkpoint": "random", "frames_per_window": 4, "crop": 32, "resampler": resampler,
            }
        )  # fmt: skip
        values += _encoded_values(load_backbone(config), clip)
    return tuple(round(float(value), 5) for value in values)


def canned_clip() -> Uint8:
    """Return smooth moving colours, uint8 [T, H, W, 3]."""
    t, y, x, c = np.ogrid[:FRAMES, :HEIGHT, :WIDTH, :3]
    wave = np.sin(0.31 * t + 0.11 * y + 0.07 * c * x) + np.cos(0.05 * x * (c + 1) - 0.17 * t)
    return np.rint(127.5 + 60 * wave).astype(np.uint8)


def _sampled_values() -> list[float]:
    """Return which frames of a film with uneven times the windows of each mode show."""
    shown_at = np.cumsum(0.03 + 0.02 * (np.arange(FRAMES * 3) % 3))
    boundaries = np.array([[0.4, 2.1], [2.6, 4.0]])
    values = []
    for mode, scope in (("block", "segment"), ("trailing", "take")):
        sampling = Sampling(4.0, 2, 3, scope, mode)  # type: ignore[arg-type]
        windows = sampling.windows(19, boundaries)
        times = np.concatenate([sampling.frame_times(window) for window in windows])
        picked = frame_indices(times, shown_at - shown_at[0])
        weights = 1 + np.arange(len(picked)) % 7
        values += [float(len(picked)), float((picked * weights).sum()), float(times.sum())]
    return values


@torch.inference_mode()
def _encoded_values(backbone: Backbone, clip: Uint8) -> list[float]:
    """Return means of pieces of the prepared clip, and some of its features."""
    video = torch.stack([backbone.prepared(clip[:4]), backbone.prepared(clip[-4:])])
    for number, tensor in enumerate(_weights(backbone)):
        tensor.copy_(canned_weights(number, tensor))
    from pjepa.patches.encode import pooled_grid

    features = backbone.encoded(video)  # [B, steps, cells, D]
    facts = backbone.facts
    pooled = pooled_grid(features.flatten(0, 1), facts.rows, facts.columns, 1).flatten()
    return [*_means(video, 12), *(LOUDER * pooled[:: len(pooled) // 24]).tolist()]


def _weights(backbone: Backbone) -> list[Tensor]:
    model = getattr(backbone, "encoder", None) or getattr(backbone, "model")  # noqa: B009
    return [parameter.data for parameter in model.parameters()]


def canned_weights(number: int, like: Tensor) -> Tensor:
    """Return values for the encoder's tensor of that number; attention is far from even."""
    steps = torch.arange(like.numel(), dtype=torch.float64)
    values = torch.sin(1.7 * steps * (number + 1) + number).float().reshape(like.shape)
    if like.ndim < 2:
        return 0.5 + 0.1 * values
    return values * 3.0 / like[0].numel() ** 0.5


def _means(tensor: Tensor, count: int) -> list[float]:
    return [float(part.double().mean()) for part in tensor.flatten().tensor_split(count)]
