"""A setting with which everything can be tried before weights are fetched: the demo's backbone.

Its weights are random, so it shows that videos are read and every step runs, not what features are
worth.
"""

from __future__ import annotations

from pjepa.patches.checkpoint import RANDOM, weights_file
from pjepa.patches.config import HF, TIMM, PatchesConfig
from pjepa.ui.errors import InputError

UNTRAINED: dict[str, str | int] = {
    "backbone": "vjepa2_1_vit_tiny",
    "checkpoint": RANDOM,
    "frames_per_window": 16,
    "crop": 96,
}


def missing_weights(config: PatchesConfig) -> str | None:
    """Return why the backbone's weights cannot be loaded, and how to get them; None if they can.

    Models of the hubs fetch theirs when they are loaded.
    """
    if config.checkpoint == RANDOM or config.backbone.startswith((TIMM, HF)):
        return None
    try:
        weights_file(config.backbone, config.checkpoint)
    except InputError as error:
        return str(error)
    return None


def as_settings() -> str:
    """Return the setting for `dvc exp run`."""
    return " ".join(f"-S patches.{name}={value}" for name, value in UNTRAINED.items())


def as_options() -> str:
    """Return the setting for `pjepa extract` and `pjepa plan`."""
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in UNTRAINED.items())
