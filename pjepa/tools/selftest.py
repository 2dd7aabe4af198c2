"""`pjepa selftest`: does this device compute what the CPU computes, and how fast?

The first user of a device runs it and pastes the JSON into an issue; until then its speed is
untested.
"""

from __future__ import annotations

import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pjepa.core.machine import Stream
from pjepa.model import flash, flex
from pjepa.model.attention import Layout, attend, attention_plan, layout_of_segments
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.masking import mask_of
from pjepa.model.objective import Batch, Jepa
from pjepa.model.predictor import Predictor
from pjepa.patches.backbone import load_backbone
from pjepa.patches.config import PatchesConfig
from pjepa.patches.encode import encoded_batch
from pjepa.pretrain.config import PjepaConfig
from pjepa.pretrain.data import TrainingTake
from pjepa.pretrain.loop import pretrain
from pjepa.probes.base.scoring import LabelledTake
from pjepa.probes.linear.config import LinearConfig
from pjepa.probes.linear.probe import fit_converged
from pjepa.ui.device import checked_device

# The real paths of `pjepa selftest`: a miniature of each, on the device and on the CPU.

CLASSES, SEGMENT, D_IN = 3, 12, 24
STREAMS: tuple[Stream, ...] = ("device", "host", "file")


def path_errors(device: str) -> dict[str, float]:
    """Return the largest difference from the CPU by path: losses and features of unit size."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        here = pretrained("cpu", "auto", folder / "cpu")
        errors = {
            f"pretrain, stream: {kind}": _distance(here, pretrained(device, kind, folder / kind))
            for kind in STREAMS
        }
        paths: dict[str, Callable[[str], np.ndarray]] = {
            "patches": extracted,
            "linear": fitted,
            "stream": lambda place: streamed(folder / "cpu" / "out" / "00001", place),
        }
        return errors | {name: _distance(path("cpu"), path(device)) for name, path in paths.items()}


def _distance(here: np.ndarray, there: np.ndarray) -> float:
    return float(np.abs(here - there).max())


def miniature(number: int) -> TrainingTake:
    """Return a take of four segments around a style of its own."""
    rng = np.random.default_rng(number)
    features = rng.normal(size=(4 * SEGMENT, D_IN)) + rng.normal(size=D_IN)
    segment = np.repeat(np.arange(4), SEGMENT)
    return TrainingTake(number, f"take-{number}", features.astype(np.float16), segment)


def pretrained(device: str, stream: Stream, folder: Path) -> np.ndarray:
    """Return the losses of an epoch: statistics, steps, snapshot and log.

    The model is the paper's with 2 of its 16 heads, of 88 channels like those.
    """
    config = PjepaConfig(
        width=176, heads=2, predictor_heads=2, epochs=1, batch_tokens=2 * 4 * SEGMENT,
        accumulate=2, neighbours=(-1, 1), device=device, stream=stream,
    )  # fmt: skip
    log: list[dict[str, float]] = []
    takes = [miniature(number) for number in range(6)]
    pretrain(takes, config, folder / "work", folder / "out", log.append)
    return np.array([log[0]["loss"], log[0]["neighbour_loss"], log[0]["target_std"]])


def extracted(device: str) -> np.ndarray:
    """Return patch features of one window of noise by a small V-JEPA 2.1 with random weights."""
    config = PatchesConfig(
        backbone="vjepa2_1_vit_tiny", checkpoint="random", crop=32, frames_per_window=8,
        device=device,
    )  # fmt: skip
    frames = np.random.default_rng(0).integers(0, 256, (8, 48, 64, 3), dtype=np.uint8)
    backbone = load_backbone(config)
    window = backbone.prepared(frames)[None]  # [1, 3, T, crop, crop]
    return encoded_batch(backbone, window, config).array().astype(np.float32)


def fitted(device: str) -> np.ndarray:
    """Return probabilities of a linear probe fitted to convergence."""
    takes = [miniature(number) for number in range(3)]
    labelled = [LabelledTake(t.features.astype(np.float32), t.segment % CLASSES) for t in takes]
    probe = fit_converged(labelled, [], CLASSES, LinearConfig(l2=(1e-1,)), device)
    return probe.predict(labelled[0].features)


def streamed(folder: Path, device: str) -> np.ndarray:
    """Return features of a take pushed segment by segment."""
    stream = ProcedureEncoder.from_pretrained(folder, device).eval().stream()
    tokens = miniature(9).features.astype(np.float32)
    parts = [stream.push(part) for part in np.split(tokens, 4)]
    return np.concatenate([part.cpu().numpy() for part in parts])


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
        return Jepa(ProcedureEncoder(config), Predictor(config, 2, heads)).to(device)


def _gradient_error(device: torch.device) -> float:
    """Return the largest difference of a gradient, relative to the largest gradient."""
    x, layout = _example()
    hidden = torch.rand(len(x), generator=torch.Generator().manual_seed(1)) < 0.8
    found = []
    for place in (torch.device("cpu"), device):
        model = _jepa(128, 4, 96, place)
        model.loss(Batch(x, layout, mask_of(hidden, layout.take_lengths)).to(place)).backward()
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
    target = torch.rand(tokens, device=device) < 0.8
    batch = Batch(x, layout, mask_of(target, layout.take_lengths))
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
    pace = steps * len(batch) / (time.perf_counter() - started)
    peak = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None
    return {"tokens_per_s": round(pace, 1), "peak_gb": peak}


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
