"""P-JEPA: dense, frame-aligned, procedure-aware features for long procedural video.

Names are imported on first use, so that a stage's import closure is what it really needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.2.0"
_EXPORTS = {
    "Forecaster": "pjepa.model.forecast",
    "ProcedureEncoder": "pjepa.model.encoder",
    "read_stream": "pjepa.streams.stream",
}
__all__ = ["Forecaster", "ProcedureEncoder", "__version__", "read_stream"]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        return getattr(import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module 'pjepa' has no attribute {name!r}")
