"""Which device computes, checked before any work starts."""

from __future__ import annotations

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
