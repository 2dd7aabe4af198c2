"""`pjepa selftest`: does this device compute what the CPU computes, and how fast?

The first user of a device runs it and pastes the JSON into an issue; until then its speed is
untested.
"""

from __future__ import annotations

import platform
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pjepa.core.machine import Stream
from pjepa.model import flex
from pjepa.model.attention import Layout, attention_plan, layout_of_segments
from pjepa.model.config import AttentionMode, EncoderConfig
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

FP32_ERROR = 1e-3  # largest difference of features whose channels have unit spread
PATH_ERROR = 1e-2  # the same of whole paths, where TF32 may be in use
BF16_COSINE = 0.98  # smallest cosine of a token in bf16 and in fp32
MODES: tuple[AttentionMode, ...] = get_args(AttentionMode)
STREAMS: list[Stream] = [kind for kind in get_args(Stream) if kind != "auto"]
CLASSES, SEGMENT, D_IN = 3, 12, 24  # of the miniatures
STEPS, TIMED_SEGMENT = 3, 45  # steps that are timed, and tokens of each segment of their take


def run_selftest(device: str, width: int, heads: int, tokens: int) -> dict[str, Any]:
    """Return every check and measurement on `device`, as JSON values; `ok` sums them up."""
    target = checked_device(device)
    cuda = target.type == "cuda"
    here = {mode: _trained(mode, torch.device("cpu")) for mode in MODES}
    there = {mode: _trained(mode, target) for mode in MODES}
    features = {mode: _distance(here[mode][0], there[mode][0]) for mode in MODES}
    gradients = {
        mode: _distance(here[mode][1], there[mode][1]) / float(here[mode][1].abs().max())
        for mode in MODES
    }
    cosine = None  # not on a CPU: some die of an illegal instruction in bf16
    if cuda:
        rounded = _trained("clip_causal", target, bf16=True)[0]
        cosine = float(F.cosine_similarity(there["clip_causal"][0], rounded, dim=1).min())
    attention, paths = _attention_error(target, width // heads), path_errors(device)
    exact = (*features.values(), *gradients.values(), attention)
    precisions = ("fp32", "bf16") if cuda else ("fp32",)
    return {
        "device": {
            "name": torch.cuda.get_device_name(target) if cuda else platform.processor(),
            "torch": str(torch.__version__),
            "cuda": torch.version.cuda if cuda else None,
            "threads": torch.get_num_threads(),
        },
        "size": [width, heads, tokens],
        "fp32_error": features,
        "gradient_error": gradients,
        "attention_error": attention,
        "kernel": "flex" if flex.is_usable(torch.empty(0, device=target)) else "plain",
        "bf16_cosine": cosine,
        "path_error": paths,
        "training": {p: _pace(target, width, heads, tokens, p == "bf16") for p in precisions},
        "ok": max(exact) < FP32_ERROR
        and max(paths.values()) < PATH_ERROR
        and (cosine is None or cosine > BF16_COSINE),
    }


def _distance(one: Tensor | np.ndarray, other: Tensor | np.ndarray) -> float:
    return float(abs(one - other).max())


# A small model on noise, on the device and on the CPU.


def _example() -> tuple[Tensor, Layout]:
    """Return three takes of noise with segments of uneven length."""
    layout = layout_of_segments([[40, 3, 200, 1, 90], [17], [64] * 8])
    generator = torch.Generator().manual_seed(0)
    return torch.randn(len(layout.index), 96, generator=generator), layout


def _jepa(width: int, heads: int, d_in: int, mode: AttentionMode, device: torch.device) -> Jepa:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = EncoderConfig(d_in=d_in, width=width, depth=4, heads=heads, attention=mode)
        return Jepa(ProcedureEncoder(config), Predictor(config, 2, heads)).to(device)


def _trained(
    mode: AttentionMode, device: torch.device, bf16: bool = False
) -> tuple[Tensor, Tensor]:
    """Return what a model makes of the example: its features, and the gradients of a step."""
    x, layout = _example()
    hidden = torch.rand(len(x), generator=torch.Generator().manual_seed(1)) < 0.8
    batch = Batch(x, layout, mask_of(hidden, layout.take_lengths)).to(device)
    model = _jepa(128, 4, 96, mode, device)
    with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
        model.loss(batch).backward()
        with torch.no_grad():
            features = model.teacher(batch.features, batch.layout).float()
    slopes = [p.grad.flatten() for p in model.trained_parameters() if p.grad is not None]
    return features.cpu(), torch.cat(slopes).cpu()


@torch.no_grad()
def _attention_error(device: torch.device, width: int) -> float:
    """Return the distance of attention from a dense masked version.

    Heads have the width of those that are timed: it decides which kernel is compiled.
    """
    layout = _example()[1].to(device)
    generator = torch.Generator().manual_seed(2)
    q, k, v = (
        torch.randn(len(layout.index), 4, width, generator=generator).to(device) for _ in range(3)
    )
    lengths = torch.tensor(layout.take_lengths, device=device)
    take = torch.repeat_interleave(torch.arange(len(lengths), device=device), lengths)
    mask = (take[:, None] == take) & (layout.segment[None, :] <= layout.segment[:, None])
    rows = [x.transpose(0, 1)[None] for x in (q, k, v)]  # [1, heads, N, d_h]
    dense = F.scaled_dot_product_attention(rows[0], rows[1], rows[2], attn_mask=mask)
    ours = attention_plan(layout, layout.segment).attend(q, k, v)
    return _distance(ours, dense[0].transpose(0, 1))


def _pace(
    device: torch.device, width: int, heads: int, tokens: int, bf16: bool
) -> dict[str, float | None]:
    """Return tokens per second and peak memory of training steps, after one that warms up."""
    segments = [TIMED_SEGMENT] * (tokens // TIMED_SEGMENT)
    count = sum(segments)
    mask = mask_of(torch.rand(count) < 0.8, (count,))
    batch = Batch(torch.randn(count, 1024), layout_of_segments([segments]), mask).to(device)
    model = _jepa(width, heads, 1024, "clip_causal", device)
    optimizer = torch.optim.AdamW(model.trained_parameters(), lr=1e-4, fused=True)
    started = 0.0
    for step in range(STEPS + 1):
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
    pace = STEPS * count / (time.perf_counter() - started)
    peak = torch.cuda.max_memory_allocated(device) / 2**30 if device.type == "cuda" else None
    return {"tokens_per_s": round(pace, 1), "peak_gb": peak}


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# The real paths: a miniature of each, on the device and on the CPU.


def path_errors(device: str) -> dict[str, float]:
    """Return the largest difference from the CPU by path: losses and features of unit size."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        losses = pretrained("cpu", "auto", folder)
        errors = {
            f"pretrain, stream: {kind}": _distance(losses, pretrained(device, kind, folder / kind))
            for kind in STREAMS
        }
        stream = partial(streamed, folder / "out" / "00001")
        for path, run in (("patches", extracted), ("linear", fitted), ("stream", stream)):
            errors[path] = _distance(run("cpu"), run(device))
        return errors


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
    features = [stream.push(segment) for segment in np.split(tokens, 4)]
    return np.concatenate([x.cpu().numpy() for x in features])
