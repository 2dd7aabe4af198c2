"""Frames as the encoder wants them: resized, cropped, normalised."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pjepa.core.section import CropView, Resampler

# Of ImageNet.
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
COEFFICIENT_BITS = 11  # cv2 resizes uint8 images in 11-bit fixed point

Uint8 = NDArray[np.uint8]


@dataclass(frozen=True)
class Geometry:
    """Size after resizing and the corner of the centre crop."""

    height: int
    width: int
    top: int
    left: int
    crop: int


@dataclass(frozen=True)
class Taps:
    """Two source lines per output line and their fixed-point weights, [n] each."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    first_weight: NDArray[np.int32]
    second_weight: NDArray[np.int32]


def scaled_size(height: int, width: int, short: int) -> tuple[int, int]:
    """Return (height, width) for a short side of `short`; the long side is rounded down."""
    if height <= width:
        return short, int(short * width / height)
    return int(short * height / width), short


def crop_geometry(
    height: int, width: int, crop: int, view: CropView = "center", short: int | None = None
) -> Geometry:
    """Return the size (short side int(crop * 256 / 224), or `short`) and the centre crop.

    The other views keep a short side of `crop` and are three along the long side.
    """
    if view == "center":
        height, width = scaled_size(height, width, short or int(crop * 256 / 224))
        top, left = round((height - crop) / 2), round((width - crop) / 2)
        return Geometry(height, width, top, left, crop)
    height, width = scaled_size(height, width, crop)
    start = ("first", "middle", "last").index(view) * ((max(height, width) - crop) // 2)
    top, left = (0, start) if height <= width else (start, 0)
    return Geometry(height, width, top, left, crop)


def bilinear_taps(size: int, new_size: int, start: int, count: int, clamp: bool) -> Taps:
    """Return taps of output lines start .. start + count - 1 when `size` lines become `new_size`.

    cv2 drops the weight beyond the border along rows (`clamp`) but only repeats the border line
    along columns; the two round differently.
    """
    scale = 1.0 / (new_size / size)
    centre = ((np.arange(start, start + count) + 0.5) * scale - 0.5).astype(np.float32)
    below = np.floor(centre)
    weight: NDArray[np.float32] = centre - below
    if clamp:
        weight = np.where((below < 0) | (below >= size - 1), np.float32(0), weight)
    one = np.float32(1 << COEFFICIENT_BITS)
    lines = below.astype(np.int64)
    return Taps(
        np.clip(lines, 0, size - 1),
        np.clip(lines + 1, 0, size - 1),
        np.rint((np.float32(1) - weight) * one).astype(np.int32),
        np.rint(weight * one).astype(np.int32),
    )


def resized_crop_cv2(frames: Uint8, geometry: Geometry) -> Uint8:
    """Return uint8 [T, crop, crop, 3], resized as cv2 INTER_LINEAR; only the crop is computed.

    numpy, frame by frame: each then stays in the cache. Channels are columns of their own, because
    single bytes are gathered faster than groups of three.
    """
    count, height, width, _ = frames.shape
    crop = geometry.crop
    x = bilinear_taps(width, geometry.width, geometry.left, crop, clamp=True)
    y = bilinear_taps(height, geometry.height, geometry.top, crop, clamp=False)
    columns = [(3 * line[:, None] + np.arange(3)).reshape(-1) for line in (x.first, x.second)]
    across = [np.repeat(weight, 3) for weight in (x.first_weight, x.second_weight)]
    used, row = np.unique(np.concatenate([y.first, y.second]), return_inverse=True)
    lines = row[:crop], row[crop:]  # among the rows used
    down = y.first_weight[:, None], y.second_weight[:, None]
    resized = np.empty((count, crop, 3 * crop), np.uint8)
    for picture, target in zip(frames.reshape(count, height, 3 * width), resized, strict=True):
        rows = picture[used]
        mixed = _weighted(np.take(rows, columns[0], axis=1), across[0])  # [rows, 3 * crop]
        mixed += _weighted(np.take(rows, columns[1], axis=1), across[1])
        mixed >>= 4
        upper = _weighted(mixed[lines[0]], down[0])  # [crop, 3 * crop]
        upper >>= 16
        lower = _weighted(mixed[lines[1]], down[1])
        lower >>= 16
        upper += lower
        upper += 2
        upper >>= 2
        target[:] = upper
    return resized.reshape(count, crop, crop, 3)


def _weighted(image: NDArray[Any], weights: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return the image times its weights; an int32 image is changed in place."""
    product = image.astype(np.int32, copy=False)
    product *= weights
    return product


def resized_crop_antialias(frames: Uint8, geometry: Geometry) -> Uint8:
    """Return uint8 [T, crop, crop, 3], resized as torchvision does with antialiasing."""
    pixels = torch.from_numpy(frames).permute(0, 3, 1, 2).float()  # [T, 3, H, W]
    size = (geometry.height, geometry.width)
    pixels = F.interpolate(pixels, size, mode="bilinear", align_corners=False, antialias=True)
    resized: Uint8 = pixels.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).numpy()
    return centre_crop(resized, geometry)


def centre_crop(frames: Uint8, geometry: Geometry) -> Uint8:
    """Return the crop window of frames that already have the resized size."""
    rows = slice(geometry.top, geometry.top + geometry.crop)
    columns = slice(geometry.left, geometry.left + geometry.crop)
    return frames[:, rows, columns]


def preprocess(
    frames: Uint8,
    crop: int,
    resampler: Resampler,
    view: CropView = "center",
    short: int | None = None,
    mean: Sequence[float] = MEAN,
    std: Sequence[float] = STD,
) -> Tensor:
    """Return encoder input float32 [3, T, crop, crop] from RGB frames uint8 [T, H, W, 3].

    `cv2` is the official data-set path (no antialias), `antialias` the official notebook's.
    """
    height, width = frames.shape[1:3]
    geometry = crop_geometry(height, width, crop, view, short)
    if (geometry.height, geometry.width) == (height, width):
        cropped = centre_crop(frames, geometry)
    else:
        resized = resized_crop_cv2 if resampler == "cv2" else resized_crop_antialias
        cropped = resized(frames, geometry)
    pixels = torch.from_numpy(cropped).permute(3, 0, 1, 2).contiguous().float()
    middle, spread = (torch.tensor(values).view(3, 1, 1, 1) for values in (mean, std))
    return pixels.div_(255).sub_(middle).div_(spread)
