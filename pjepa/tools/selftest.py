"""`pjepa selftest`: does this device compute what the CPU computes, and how fast?

The first user of a device runs it and pastes the JSON into an issue; until then its speed is
untested.
"""

from __future__ import annotations

import platform
import time
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from pjepa.encoder.attention import flash, flex
from pjepa.encoder.attention.layout import Layout, layout_of_segments
from pjepa.encoder.attention.plan import attend, attention_plan
from pjepa.encoder.config import EncoderConfig
from pjepa.encoder.encoder import ProcedureEncoder
from pjepa.pretrain.objective import Batch, Jepa
from pjepa.tools.selftest_paths import path_errors
from pjepa.ui.device import checked_device

FP32_ERROR = 1e-3  # largest difference of features whose channels have unit spread
PATH_ERROR = 1e-2  # the same of whole paths, where TF32 may be in use
BF16_COSINE = 0.98  # smallest cosine of a token in bf16 and in fp32
MODES = ("clip_causal", "block_causal", "token_causal", "bidirectional")


def run_selftest(device: str, width: int, heads: int, tokens: int) -> dict[str, Any]:
    """Return every check and measurement on `device`, as JSON values; `ok` sums them up."""
    target = checked_device(device)
    report: dict[str, Any] = {"device": _device_facts(target), "size": [width, heads, tokens]}
    report["fp32_error"] = {mode: _parity(mode, target) for mode in MODES}
    report["gradient_error"] = _gradient_error(target)
    report["attention"] = _attention_error(target, width // heads)
    report["bf16_cosine"] = _bf16_cosine(target)
    report["path_error"] = path_errors(device)
    report["training"] = _training_pace(target, width, heads, tokens)
    report["ok"] = (
        max(report["fp32_error"].values()) < FP32_ERROR
        and report["gradient_error"] < FP32_ERROR
        and report["attention"]["error"] < FP32_ERROR
        and max(report["path_error"].values()) < PATH_ERROR
        and (report["bf16_cosine"] is None or report["bf16_cosine"] > BF16_COSINE)
    )
    return report


def _device_facts(device: torch.device) -> dict[str, Any]:
    cuda = device.type == "cuda"
    return {
        "name": torch.cuda.get_device_name(device) if cuda else platform.processor(),
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda if cuda else None,
        "threads": torch.get_num_threads(),
    }


def _example() -> tuple[Tensor, Layout]:
    """Return three takes of noise with segments of uneven length."""
    layout = layout_of_segments([[40, 3, 200, 1, 90], [17], [64] * 8])
    generator = torch.Generator().manual_seed(0)
    return torch.randn(len(layout.index), 96, generator=generator), layout


def _encoder(mode: str) -> ProcedureEncoder:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = EncoderConfig(d_in=96, width=128, depth=4, heads=4, attention=mode)
        return ProcedureEncoder(config).eval()


@torch.no_grad()
def _parity(mode: str, device: torch.device) -> float:
    """Return the largest difference between features made on the CPU and on the device, in fp32."""
    (x, layout), encoder = _example(), _encoder(mode)
    here = encoder(x, layout)
    there = encoder.to(device)(x.to(device), layout.to(device)).cpu()
    return float((here - there).abs().max())


def _jepa(width: int, heads: int, d_in: int, device: torch.device) -> Jepa:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = EncoderConfig(
            d_in=d_in, width=width, depth=4, heads=heads, attention="clip_causal"
        )
        return Jepa(config, 2, heads).to(device)


def _gradient_error(device: torch.device) -> float:
    """Return the largest difference of a gradient, relative to the largest gradient."""
    x, layout = _example()
    hidden = torch.rand(len(x), generator=torch.Generator().manual_seed(1)) < 0.8
    found = []
    for place in (torch.device("cpu"), device):
        model = _jepa(128, 4, 96, place)
        model.loss(Batch(x, hidden, layout).to(place)).backward()
        found.append(torch.cat([p.grad.flatten().cpu() for p in model.trained_parameters()
                                if p.grad is not None]))  # fmt: skip
    return float((found[0] - found[1]).abs().max() / found[0].abs().max())


@torch.no_grad()
def _attention_error(device: torch.device, width: int) -> dict[str, Any]:
    """Return the way attention is computed here, and its distance from a dense masked version.

    Heads have the width of those that are timed: it decides which kernel is compiled.
    """
    _, layout = _example()
    layout = layout.to(device)
    generator = torch.Generator().manual_seed(2)
    q, k, v = (
        torch.randn(len(layout.index), 4, width, generator=generator).to(device) for _ in range(3)
    )
    take = torch.repeat_interleave(
        torch.arange(len(layout.take_lengths), device=device),
        torch.tensor(layout.take_lengths, device=device),
    )
    mask = (take[:, None] == take) & (layout.segment[None, :] <= layout.segment[:, None])
    rows = [x.transpose(0, 1)[None] for x in (q, k, v)]  # [1, heads, N, d_h]
    dense = F.scaled_dot_product_attention(rows[0], rows[1], rows[2], attn_mask=mask)
    dense = dense[0].transpose(0, 1)
    found = attend(q, k, v, attention_plan(layout, layout.segment))
    way = "flash" if flash.is_usable(v) else "flex" if flex.is_usable(v) else "chunks"
    return {"way": way, "error": float((found - dense).abs().max())}


@torch.no_grad()
def _bf16_cosine(device: torch.device) -> float | None:
    """Return smallest cosine between a token's features in bf16 and in fp32; none on the CPU."""
    if device.type == "cpu":  # some CPUs die of an illegal instruction in bf16
        return None
    x, layout = _example()
    encoder, x, layout = _encoder("clip_causal").to(device), x.to(device), layout.to(device)
    exact = encoder(x, layout)
    with torch.autocast(device.type, torch.bfloat16):
        rounded = encoder(x, layout).float()
    return float(F.cosine_similarity(exact, rounded, dim=1).min())


def _training_pace(device: torch.device, width: int, heads: int, tokens: int) -> dict[str, Any]:
    """Return tokens per second and peak memory of training steps on one take, per precision."""
    segments = [45] * (tokens // 45) + ([tokens % 45] if tokens % 45 else [])
    layout = layout_of_segments([segments]).to(device)
    x = torch.randn(tokens, 1024, device=device)
    batch = Batch(x, torch.rand(tokens, device=device) < 0.8, layout)
    found = {}
    for precision in ("fp32", "bf16") if device.type == "cuda" else ("fp32",):
        model = _jepa(width, heads, 1024, device)
        optimizer = torch.optim.AdamW(model.trained_parameters(), lr=1e-4, fused=True)
        found[precision] = _pace(model, optimizer, batch, precision == "bf16")
    return found


def _pace(
    model: Jepa, optimizer: torch.optim.Optimizer, batch: Batch, bf16: bool, steps: int = 3
) -> dict[str, float | None]:
    """Return the pace of `steps` steps after one that warms up."""
    device = batch.features.device
    started = time.perf_counter()
    for step in range(steps + 1):
        if step == 1:
            _wait(device)
            started = time.perf_counter()
        with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
            loss = model.loss(batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        model.update_teacher(0.999)
    _wait(device)
    pace = steps * len(batch.target) / (time.perf_counter() - started)
    peak = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None
    return {"tokens_per_s": round(pace, 1), "peak_gb": peak}


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
