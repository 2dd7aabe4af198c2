"""Encoder weights: seeded random ones, an official `.pt`, or a `.safetensors` of the encoder."""

import warnings
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from pjepa.backbones.vjepa21 import VARIANTS, Variant, VJEPA21Encoder, initialise
from pjepa.errors import InputError
from pjepa.work import file_sha256

RANDOM = "random"


@dataclass(frozen=True)
class LoadedEncoder:
    """An encoder in eval mode and the identity of its weights."""

    encoder: VJEPA21Encoder
    weights_id: str


def named_variant(name: str) -> Variant:
    """The variant of that name."""
    if name not in VARIANTS:
        raise InputError(f"patches.backbone: {name!r} is not one of {', '.join(VARIANTS)}")
    return VARIANTS[name]


def weights_id(variant_name: str, checkpoint: str, seed: int) -> str:
    """The file's sha256, or `random-<variant>-<seed>`; equal ids mean equal weights."""
    if checkpoint == RANDOM:
        return f"{RANDOM}-{variant_name}-{seed}"
    path = Path(checkpoint)
    if not path.is_file():
        raise InputError(
            f"patches.checkpoint: no file {path}; fetch the weights, or set it to {RANDOM}"
        )
    digest = file_sha256(path)
    expected = named_variant(variant_name)
    if path.name == expected.file and expected.sha256 not in (None, digest):
        warnings.warn(f"{path}: sha256 {digest} is not the released file's", stacklevel=2)
    return digest


def random_encoder(variant: Variant, seed: int) -> VJEPA21Encoder:
    """An encoder with seeded random weights; global random state is neither read nor changed."""
    encoder = _empty_encoder(variant).to_empty(device="cpu")
    return initialise(encoder, torch.Generator().manual_seed(seed)).eval().requires_grad_(False)


def encoder_from_file(variant: Variant, path: Path) -> VJEPA21Encoder:
    """The encoder with the weights of a file; one that does not fit the variant is refused."""
    is_safetensors = path.suffix == ".safetensors"
    state = _safetensors_state(path) if is_safetensors else _official_state(variant, path)
    encoder = _empty_encoder(variant)
    _check_state(path, state, encoder.state_dict())
    encoder.load_state_dict(state, strict=True, assign=True)
    return encoder.float().eval().requires_grad_(False)


def build_encoder(variant_name: str, checkpoint: str, seed: int) -> VJEPA21Encoder:
    """The encoder of a variant with `random` weights or those of the file `checkpoint`."""
    variant = named_variant(variant_name)
    if checkpoint == RANDOM:
        return random_encoder(variant, seed)
    return encoder_from_file(variant, Path(checkpoint))


def load_encoder(variant_name: str, checkpoint: str, seed: int) -> LoadedEncoder:
    """`build_encoder` together with the identity of its weights."""
    identity = weights_id(variant_name, checkpoint, seed)
    return LoadedEncoder(build_encoder(variant_name, checkpoint, seed), identity)


def _empty_encoder(variant: Variant) -> VJEPA21Encoder:
    with torch.device("meta"):
        return VJEPA21Encoder(variant)


def _safetensors_state(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: not a readable safetensors file ({error})") from None


def _official_state(variant: Variant, path: Path) -> dict[str, Tensor]:
    """The encoder's tensors in an official file, prefixes stripped (facts/vjepa21.md, Sec. 1)."""
    try:
        content = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    except (OSError, RuntimeError, UnpicklingError, EOFError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path}: not a readable torch checkpoint ({reason})") from None
    found = sorted(content) if isinstance(content, dict) else []
    key = variant.encoder_key
    if key is None or key not in found:
        raise InputError(
            f"{path}: expected the top-level key {key!r} of this variant, found "
            f"{', '.join(found) or type(content).__name__}; check patches.backbone"
        )
    tensors: dict[str, Any] = content[key]
    return {
        name.replace("module.", "").replace("backbone.", ""): tensor
        for name, tensor in tensors.items()
    }


def _check_state(path: Path, found: dict[str, Tensor], expected: dict[str, Any]) -> None:
    missing, unknown = (
        sorted(expected.keys() - found.keys()),
        sorted(found.keys() - expected.keys()),
    )
    shapes = [
        f"{name} is {list(found[name].shape)} instead of {list(expected[name].shape)}"
        for name in expected
        if name in found and found[name].shape != expected[name].shape
    ]
    if missing or unknown or shapes:
        first = shapes[:1] or [f"first missing: {n}" for n in missing[:1]]
        first = first or [f"first unknown: {unknown[0]}"]
        raise InputError(
            f"{path}: does not fit patches.backbone ({len(missing)} tensors missing, "
            f"{len(unknown)} unknown, {len(shapes)} of another shape; {first[0]})"
        )
