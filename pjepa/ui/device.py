"""Which device computes, checked before any work starts."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache

import torch

from pjepa.ui.console import InputError, say

# Virtual machines may offer AMX and stop at its first instruction.
WITHOUT_AMX = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
# Products of bf16 matrices forward and backward, as training makes them.
BF16_TRIAL = """
import torch
x, w = (torch.ones(64, 64, dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
(x @ w.T).float().sum().backward()
assert bool(w.grad.isfinite().all())
"""


def check_cuda(name: str) -> None:
    """Refuse a missing CUDA device without touching any, so that no memory is taken."""
    kind, colon, number = name.partition(":")
    if kind != "cuda":
        return
    count = torch.cuda.device_count()
    if (colon and not number.isdecimal()) or int(number or 0) >= count:
        built = "" if torch.version.cuda else ", this torch is built without CUDA"
        raise InputError(
            f"device {name} cannot be used here (CUDA devices found: {count}{built}); "
            "set machine.device, PJEPA_DEVICE or --device to auto or cpu"
        )


def checked_device(name: str, precision: str = "fp32", parameter: str = "") -> torch.device:
    """Return the device of that name (`cpu`, `cuda:1`, ...); raise an error if it is unusable.

    `parameter` names the setting of the precision in which it has to compute.
    """
    check_cuda(name)
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].partition(". ")[0]  # what follows fills a screen
        raise InputError(f"device {name} cannot be used here ({reason}); try cpu") from None
    if precision == "bf16":
        check_bf16(device, parameter)
    return device


def check_bf16(device: torch.device, parameter: str) -> None:
    """Raise an error if the device cannot compute in bf16, or would only imitate it."""
    if device.type == "cpu":
        try_bf16(parameter)
    elif device.type == "cuda" and not torch.cuda.is_bf16_supported(False):
        name = torch.cuda.get_device_name(device)
        raise InputError(f"{parameter}: {name} cannot compute in bf16; set it to fp32")


@contextmanager
def tf32(device: torch.device) -> Iterator[None]:
    """Use TF32 for float32 products on CUDA: 10 bits of each factor, sums in float32.

    For networks only, and undone at the end: a linear probe fitted to convergence needs all bits.
    """
    before = torch.get_float32_matmul_precision()
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def can_compile(device: torch.device) -> bool:
    """Return whether torch.compile has its back end: Triton on CUDA, a C++ compiler on CPU."""
    if device.type == "cuda":
        return importlib.util.find_spec("triton") is not None
    return any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "clang++"))


def check_compile(device: torch.device, parameter: str) -> None:
    """Raise an error if torch.compile cannot work here."""
    if not can_compile(device):
        needed = "Triton" if device.type == "cuda" else "a C++ compiler"
        raise InputError(f"{parameter}: torch.compile needs {needed} here; set it to false")


@cache
def try_bf16(parameter: str) -> None:
    """Raise an error if bf16 kills this CPU; warn if it is slower than fp32.

    Some CPUs stop at an illegal instruction, which nothing can catch: a child process tries first.
    """
    if code := bf16_trial():
        reason = f"the trial ended with code {code}"
        hint = "" if bf16_trial(WITHOUT_AMX) else f", or set {'='.join(*WITHOUT_AMX.items())}"
        raise InputError(f"{parameter}: this CPU cannot compute in bf16 ({reason}); use fp32{hint}")
    if not has_bf16():
        say(f"{parameter}: this CPU has no bf16 instructions, so bf16 is slower than fp32 here")


def bf16_trial(environment: Mapping[str, str] | None = None) -> int:
    """Return how a child process with these variables ends that computes in bf16; 0 is well."""
    command = [sys.executable, "-c", BF16_TRIAL]
    variables = {**os.environ, **(environment or {})}
    return subprocess.run(command, env=variables, capture_output=True, check=False).returncode


def has_bf16() -> bool:
    """Return whether the CPU multiplies bf16 matrices itself (AMX, or AVX-512 with bf16)."""
    cpu = torch.cpu
    kinds = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    return any(bool(getattr(cpu, kind, lambda: False)()) for kind in kinds)
