"""`pjepa convert`: the encoder of an official checkpoint as a file of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from pjepa.hub.download import sha256_shown
from pjepa.hub.places import download_folder
from pjepa.patches.checkpoint import encoder_state, named_variant, weights_file
from pjepa.patches.tensors import read_tensors, tensors_id, write_tensors
from pjepa.ui.errors import InputError


@dataclass(frozen=True)
class Port:
    """A written port, what it was made from, and the identity both share."""

    path: Path
    bytes: int
    source_bytes: int
    weights_id: str


def written_port(checkpoint: str, variant_name: str, out: Path | None) -> Port:
    """Write the encoder with metadata that names the variant, and read it back to compare."""
    source = weights_file(variant_name, checkpoint)
    target = out or download_folder() / f"{variant_name}.safetensors"
    if target.suffix != ".safetensors":
        raise InputError(f"{target}: a port is a .safetensors file; give --out such a name")
    if target.exists() and target.samefile(source):
        raise InputError(f"{source}: is such a port already; give the official .pt")
    state = encoder_state(variant_name, source)
    variant = named_variant(variant_name)
    identity = tensors_id(state)
    metadata = {
        "variant": variant_name,
        "heads": variant.heads,
        "levels": list(variant.levels),
        "source": source.name,
        "source_sha256": sha256_shown(source),
        "weights_id": identity,
    }
    write_tensors(target, state, metadata)
    written = read_tensors(target)
    if any(not torch.equal(written[name], state[name]) for name in state):
        target.unlink()
        raise InputError(f"{target}: does not read back as it was written; check the disk")
    return Port(target, target.stat().st_size, source.stat().st_size, identity)
