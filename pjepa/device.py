"""Which device computes, checked before any work starts."""

from __future__ import annotations

import importlib.util
import os
import shutil

import torch

from pjepa.errors import InputError


def checked_device(name: str) -> torch.device:
    """The device of that name (`cpu`, `cuda`, `cuda:1`, ...); one that cannot be used is named."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"device {name} cannot be used here ({reason}); try cpu") from None
    return device


def can_compile(device: torch.device) -> bool:
    """Whether torch.compile finds its back end: Triton on CUDA, a C++ compiler on the CPU."""
    if device.type == "cuda":
        return importlib.util.find_spec("triton") is not None
    return any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "clang++"))


def check_compile(device: torch.device, parameter: str) -> None:
    """Refuses a compilation that could not start."""
    if not can_compile(device):
        needed = "Triton" if device.type == "cuda" else "a C++ compiler"
        raise InputError(f"{parameter}: torch.compile needs {needed} here; set it to false")
