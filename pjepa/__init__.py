"""P-JEPA: dense, frame-aligned, procedure-aware features for long procedural video.

Names are imported on first use, so that a stage's import closure is what it really needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_EXPORTS = {
    "ProcedureEncoder": "pjepa.model.encoder",
    "read_stream": "pjepa.streams.store",
}
__all__ = ["ProcedureEncoder", "read_stream"]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'pjepa' has no attribute {name!r}")
