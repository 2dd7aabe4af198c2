"""Tensors in files, safely: what a file holds, its identity, and a port written in pieces."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor

from pjepa.core.files import atomic_file, read_torch
from pjepa.patches.store import METADATA, safetensors_header
from pjepa.ui.errors import InputError

DTYPES = {
    torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64",
}  # fmt: skip


def read_tensors(path: Path) -> dict[str, Any]:
    """Return the content of a `.safetensors` or torch file, memory-mapped; runs no code in it."""
    if path.suffix == ".safetensors":
        try:
            return dict(load_file(path))
        except (OSError, SafetensorError) as error:
            raise InputError(f"{path}: not a readable safetensors file ({error})") from None
    return read_torch(path)


def read_metadata(path: Path) -> dict[str, Any]:
    """Return our metadata of a `.safetensors` file; empty where it has none."""
    try:
        with safe_open(path, "pt") as file:
            text = (file.metadata() or {}).get(METADATA, "{}")
        found = json.loads(text)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: not a readable safetensors file ({error})") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{path}: its metadata is not JSON ({error})") from None
    return found if isinstance(found, dict) else {}


def tensor_bytes(tensor: Tensor) -> memoryview:
    """Return the raw bytes of a tensor, without a copy where it is contiguous on the CPU."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data


def tensors_id(state: Mapping[str, Tensor]) -> str:
    """Return sha256 of names, types, shapes and values: the same weights in any kind of file."""
    digest = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name]
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor_bytes(tensor))
    return digest.hexdigest()


def write_tensors(path: Path, state: Mapping[str, Tensor], metadata: Mapping[str, Any]) -> None:
    """Write a `.safetensors` file tensor by tensor: equal content gives equal bytes."""
    entries, start = {}, 0
    for name in sorted(state):
        stop = start + state[name].numel() * state[name].element_size()
        shape = list(state[name].shape)
        kind = DTYPES[state[name].dtype]
        entries[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, stop]}
        start = stop
    with atomic_file(path) as partial, partial.open("wb") as file:
        file.write(safetensors_header(metadata, entries))
        for name in sorted(state):
            file.write(tensor_bytes(state[name]))
