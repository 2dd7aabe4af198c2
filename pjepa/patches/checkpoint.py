"""Encoder weights: seeded random ones, an official `.pt`, or a `.safetensors` of the encoder.

Head counts, RoPE and its interpolation leave no trace in tensor shapes: they come from the table
of variants. So a file must show that it is the named variant, by everything it does show: its
name, its top-level keys, its tensors' names and shapes, its metadata.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from pjepa.patches.store import METADATA
from pjepa.patches.vjepa21 import VARIANTS, Variant, VJEPA21Encoder, initialise
from pjepa.storage.hub import checkpoint_file, found_file, placing
from pjepa.storage.reading import open_tensors, read_tensors, read_torch
from pjepa.storage.writing import atomic_file
from pjepa.ui.console import InputError, say

# Tensors in files, safely: what a file holds, its identity, and a port.


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Return the content of a `.safetensors` or torch file, memory-mapped; runs no code in it."""
    return read_tensors(path) if path.suffix == ".safetensors" else read_torch(path)


def read_metadata(path: Path) -> dict[str, Any]:
    """Return our metadata of a `.safetensors` file; empty where it has none."""
    with open_tensors(path) as file:
        text = (file.metadata() or {}).get(METADATA, "{}")
    try:
        stated = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: its metadata is not JSON ({error})") from None
    return stated if isinstance(stated, dict) else {}


def tensors_id(state: Mapping[str, Tensor]) -> str:
    """Return sha256 of names, types, shapes and values: the same weights in any kind of file."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name]
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def write_port(path: Path, state: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write a `.safetensors` file; equal content gives equal bytes."""
    about = {METADATA: json.dumps(metadata, sort_keys=True)}
    with atomic_file(path) as partial:
        save_file({name: value.contiguous() for name, value in state.items()}, partial, about)


RANDOM, OFFICIAL = "random", "official"
ENCODER_KEYS = ("ema_encoder", "target_encoder", "encoder")  # the last is the student
Weights = dict[str, Tensor]


def named_variant(name: str) -> Variant:
    """Return the variant of that name."""
    if name not in VARIANTS:
        raise InputError(
            f"patches.backbone: {name!r} is not one of {', '.join(VARIANTS)}, timm:NAME or hf:NAME"
        )
    return VARIANTS[name]


def weights_file(variant_name: str, checkpoint: str) -> Path:
    """Return the file of `patches.checkpoint`; `official` prefers a port over the `.pt`."""
    variant = named_variant(variant_name)
    if checkpoint != OFFICIAL:
        return checkpoint_file(checkpoint)
    if variant.file is None:
        raise InputError(
            f"patches.checkpoint: {variant_name} has no released weights; set it to {RANDOM}"
        )
    if path := found_file(f"{variant_name}.safetensors", variant.file):
        return path
    raise InputError(
        f"patches.checkpoint: {variant.file} of {variant_name} is not on this machine; run "
        f"`pjepa fetch {variant_name}`, or download {variant.url} and {placing(variant.file)}"
    )


def weights_id(variant_name: str, checkpoint: str, seed: int) -> str:
    """Return `random-<variant>-<seed>`, or the content hash of the encoder's tensors.

    Equal ids mean equal weights: an official file and its port have one id.
    """
    if checkpoint == RANDOM:
        named_variant(variant_name)
        return f"{RANDOM}-{variant_name}-{seed}"
    return tensors_id(encoder_state(variant_name, weights_file(variant_name, checkpoint)))


def build_encoder(variant_name: str, checkpoint: str, seed: int) -> VJEPA21Encoder:
    """Return the encoder of a variant with `random` weights or those of a file."""
    if checkpoint == RANDOM:
        return random_encoder(named_variant(variant_name), seed)
    return encoder_from_file(variant_name, weights_file(variant_name, checkpoint))


def random_encoder(variant: Variant, seed: int) -> VJEPA21Encoder:
    """Return an encoder with seeded random weights; global random state is untouched."""
    encoder = empty_encoder(variant)  # not by `to_empty`, which imports sympy for a second
    values = {name: torch.empty(like.shape) for name, like in encoder.state_dict().items()}
    encoder.load_state_dict(values, assign=True)
    return initialise(encoder, torch.Generator().manual_seed(seed)).eval().requires_grad_(False)


def encoder_from_file(variant_name: str, path: Path) -> VJEPA21Encoder:
    """Return the encoder with the weights of a file; raise if it does not fit the variant."""
    encoder = empty_encoder(named_variant(variant_name))
    encoder.load_state_dict(encoder_state(variant_name, path), strict=True, assign=True)
    return encoder.float().eval().requires_grad_(False)


def empty_encoder(variant: Variant) -> VJEPA21Encoder:
    """Return the encoder's shapes without values."""
    with torch.device("meta"):
        return VJEPA21Encoder(variant)


def encoder_state(variant_name: str, path: Path) -> Weights:
    """Return the encoder's tensors of a file by official name, checked for the variant."""
    variant = named_variant(variant_name)
    if not path.is_file():
        raise InputError(f"{path}: no such checkpoint")
    _check_name(path, variant_name)
    if path.suffix != ".safetensors":
        return _checked_state(path, _stripped(_official_state(path, variant)), variant_name)
    stated = _checked_metadata(path, variant_name)
    state = _checked_state(path, _stripped(read_checkpoint(path)), variant_name)
    if not stated:
        say(f"{path}: names no variant; taken as {variant_name} because all tensors fit")
    return state


def _check_name(path: Path, variant_name: str) -> None:
    """Refuse a file under another variant's released name."""
    owner = next((name for name, v in VARIANTS.items() if v.file == path.name), variant_name)
    if owner != variant_name:
        raise InputError(
            f"{path}: this is the released file of {owner}, patches.backbone is {variant_name}; "
            "set one to fit the other"
        )


def _checked_metadata(path: Path, variant_name: str) -> dict[str, Any]:
    """Return a port's metadata; raise if its variant or heads are not the named variant's."""
    stated = read_metadata(path)
    heads = named_variant(variant_name).heads
    for field, expected in (("variant", variant_name), ("heads", heads)):
        if stated.get(field, expected) != expected:
            raise InputError(
                f"{path}: its {field} is {stated[field]!r}, {variant_name} has {expected!r}; "
                "check patches.backbone"
            )
    return stated


def _official_state(path: Path, variant: Variant) -> Mapping[str, Any]:
    """Return the part of an official file that this variant's features come from."""
    content = read_checkpoint(path)
    present = [key for key in ENCODER_KEYS if isinstance(content.get(key), dict)]
    key = variant.encoder_key
    if key is not None and key in present:
        return content[key]
    names = ", ".join(sorted(map(str, content))[:8]) or "nothing"
    if present == ["encoder"]:
        reason = "it holds the student alone; features come from the EMA encoder"
    elif present:
        reason = "so it is the file of another variant; check patches.backbone"
    else:
        reason = "so it is no training checkpoint of V-JEPA 2.1; give the official file"
    raise InputError(f"{path}: expected the top-level key {key!r}, found {names}: {reason}")


def _stripped(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return names without the wrappers of distributed training."""
    return {k.replace("module.", "").replace("backbone.", ""): v for k, v in state.items()}


def _checked_state(path: Path, state: Mapping[str, Any], variant_name: str) -> Weights:
    """Return the state; raise unless names, shapes and finite values fit the variant."""
    expected = empty_encoder(named_variant(variant_name)).state_dict()
    if faults := _faults(state, expected):
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        hint = _likely_kind(state, variant_name)
        raise InputError(f"{path}: does not fit {variant_name}: {faults[0]}{more}{hint}")
    for name, tensor in state.items():
        if not tensor.is_floating_point() or not bool(torch.isfinite(tensor).all()):
            raise InputError(f"{path}: {name} holds values that are not finite numbers")
    return dict(state)


def _faults(state: Mapping[str, Any], expected: Mapping[str, Tensor]) -> list[str]:
    """Return what is wrong with the names and shapes, missing tensors first."""
    faults = [f"{name} is missing" for name in expected if name not in state]
    faults += [f"{name} is unknown" for name in state if name not in expected]
    for name in expected:
        shape = list(getattr(state.get(name), "shape", ()))
        if name in state and shape != list(expected[name].shape):
            faults.append(f"{name} is {shape} instead of {list(expected[name].shape)}")
    return faults


def _likely_kind(state: Mapping[str, Any], variant_name: str) -> str:
    """Return what such a file most likely is, as the end of a sentence; else empty."""
    if any(name.startswith("encoder.embeddings.") for name in state):
        return "; this is a Hugging Face port, which has other names and V-JEPA 2's RoPE"
    if "norm.weight" in state and "video_mod_embed" not in state:
        return "; this is a V-JEPA 2 file (its own final norm, no modality vectors), not 2.1"
    weight = state.get("patch_embed.proj.weight")
    width = weight.shape[0] if isinstance(weight, Tensor) and weight.ndim else None
    depth = len({name.split(".")[1] for name in state if name.startswith("blocks.")})
    like = [name for name, v in VARIANTS.items() if (v.width, v.depth) == (width, depth)]
    if like and like[0] != variant_name:
        return f"; its width {width} and depth {depth} are those of {like[0]}"
    return ""
