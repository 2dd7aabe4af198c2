"""torch's Adam and AdamW without torch's compiler.

torch marks methods of its optimisers for its compiler and imports that at their first call, about
as long as torch itself, in every process that trains. Below the marks is the same code.
"""

from __future__ import annotations

from inspect import unwrap
from typing import TypeVar

import torch

AnyOptimizer = TypeVar("AnyOptimizer", bound=torch.optim.Optimizer)
MARKED = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")


def unmarked(kind: type[AnyOptimizer]) -> type[AnyOptimizer]:
    """Return an optimiser that never imports the compiler."""
    methods = {name: unwrap(getattr(kind, name)) for name in MARKED}
    step = torch.no_grad()(unwrap(kind.step))  # a mark of `step` turns gradients off
    return type(kind.__name__, (kind,), {**methods, "step": step})


Adam, AdamW = unmarked(torch.optim.Adam), unmarked(torch.optim.AdamW)
