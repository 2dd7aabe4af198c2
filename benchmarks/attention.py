"""Attention over packed takes: `python -m benchmarks.attention [--json FILE]`.

References, all on the same tensors: `is_causal`, torch's own causal attention, which sees less and
is the floor; `dense mask`, torch's attention under a T x T boolean mask; `chunks`, whole blocks
against their prefix by torch's public API, which is our way where the fast ones are not available.
Ours includes the plan, though in a model all layers share one. Times are medians of CPU time at one
thread, so that other processes do not count, and are measured alternately. Memory is the peak above
the process's size just before, each way in a process of its own (Linux only).
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Annotated

import torch
import typer
from torch import Tensor
from torch.nn import functional as F

from benchmarks.workers import Table, forget_peak, resident, row
from pjepa.model.attention import Layout, attend, attention_plan, layout_of_segments, prefix_attend

Way = Callable[[Tensor, Tensor, Tensor, Layout], Tensor]


def ours(q: Tensor, k: Tensor, v: Tensor, layout: Layout) -> Tensor:
    return attend(q, k, v, attention_plan(layout, layout.segment))


def chunks(q: Tensor, k: Tensor, v: Tensor, layout: Layout) -> Tensor:
    return prefix_attend(q, k, v, attention_plan(layout, layout.segment).chunks)


def is_causal(q: Tensor, k: Tensor, v: Tensor, layout: Layout) -> Tensor:
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))  # [1, heads, T, d_h]
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)[0].transpose(0, 1)


def dense_mask(q: Tensor, k: Tensor, v: Tensor, layout: Layout) -> Tensor:
    q, k, v = (x.transpose(0, 1)[None] for x in (q, k, v))  # [1, heads, T, d_h]
    allowed = layout.segment[None, :] <= layout.segment[:, None]  # [T, T]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)[0].transpose(0, 1)


WAYS: dict[str, Way] = {
    "ours": ours, "is_causal": is_causal, "dense mask": dense_mask, "chunks": chunks,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """Takes of about the same length, cut into segments of about the same length."""

    takes: int
    length: int
    segment: int
    heads: int
    width: int
    references: tuple[str, ...]
    rounds: int

    def layout(self) -> Layout:
        draw = random.Random(0)
        lengths = (segments(self.length, self.segment, draw) for _ in range(self.takes))
        return layout_of_segments(list(lengths))


CASES = {
    "T 8192, segments 45, 4 x 64": Case(1, 8192, 45, 4, 64, ("is_causal", "dense mask"), 7),
    "T 8192, segments 500, 4 x 64": Case(1, 8192, 500, 4, 64, ("is_causal",), 5),
    "T 1500, segments 45, 4 x 64": Case(1, 1500, 45, 4, 64, ("is_causal", "chunks"), 21),
    "T 1500, segments 10, 4 x 64": Case(1, 1500, 10, 4, 64, ("is_causal", "chunks"), 21),
    "3 takes of 250, segments 25, 4 x 32": Case(3, 250, 25, 4, 32, ("chunks",), 101),
    "3 takes of 70, segments 8, 4 x 32": Case(3, 70, 8, 4, 32, ("chunks",), 101),
    "300 takes of 30, segments 8, 4 x 32": Case(300, 30, 8, 4, 32, ("chunks",), 5),
}
PEAKS = {
    "T 4096, segments 45, 4 x 64": (4096, "is_causal"),
    "T 8192, segments 45, 4 x 64": (8192, "is_causal"),
    "T 8192 against a mask, segments 45, 4 x 64": (8192, "dense mask"),
}


def segments(length: int, mean: int, draw: random.Random) -> list[int]:
    """Return segment lengths, half to one and a half times the mean, that sum to `length`."""
    found: list[int] = []
    while (left := length - sum(found)) > 0:
        found.append(min(left, draw.randint(max(1, mean // 2), mean + mean // 2)))
    return found


def tensors(layout: Layout, heads: int, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return q, k, v [N, heads, d_h] as a fused projection leaves them."""
    torch.manual_seed(0)
    fused = torch.randn(len(layout.index), 3, heads, width).unbind(1)
    return fused[0].requires_grad_(), fused[1].requires_grad_(), fused[2].requires_grad_()


def forward(way: Way, qkv: tuple[Tensor, Tensor, Tensor], layout: Layout) -> None:
    with torch.no_grad():
        way(*qkv, layout)


def both(way: Way, qkv: tuple[Tensor, Tensor, Tensor], layout: Layout) -> None:
    out = way(*qkv, layout)
    torch.autograd.grad(out, qkv, torch.ones_like(out))


def times(case: Case, run: Callable[..., None]) -> dict[str, float]:
    """Return the median milliseconds of every way."""
    layout = case.layout()
    qkv = tensors(layout, case.heads, case.width)
    taken: dict[str, list[float]] = {name: [] for name in ("ours", *case.references)}
    for _ in range(case.rounds):
        for name, found in taken.items():
            start = time.process_time()
            run(WAYS[name], qkv, layout)
            found.append(1e3 * (time.process_time() - start))
    return {name: median(found) for name, found in taken.items()}


def own_peak(name: str, length: int) -> float:
    """Return MB that one forward and backward adds to this process at its peak."""
    small, case = (Case(1, n, 45, 4, 64, (), 1) for n in (64, length))
    layout = small.layout()
    both(WAYS[name], tensors(layout, 4, 64), layout)  # so that libraries are loaded
    layout = case.layout()
    qkv = tensors(layout, 4, 64)
    before = resident("VmRSS")
    forget_peak()
    both(WAYS[name], qkv, layout)
    return resident("VmHWM") - before


def peak(name: str, length: int) -> float:
    """Return `own_peak` in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.attention", "--peak", name, "--tokens"]
    done = subprocess.run([*command, str(length)], check=True, capture_output=True, text=True)
    return float(done.stdout)


def main(
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the table.")] = None,
    way: Annotated[str | None, typer.Option("--peak", hidden=True)] = None,
    tokens: Annotated[int, typer.Option(hidden=True)] = 0,
) -> None:
    """Print ours beside every reference."""
    torch.set_num_threads(1)
    if way is not None:
        print(own_peak(way, tokens))
        return
    table = Table()
    for name, case in CASES.items():
        for what, run in (("forward", forward), ("forward + backward", both)):
            found = times(case, run)
            for other in case.references:
                table.add(f"{name}, {what} / {other}", row(found["ours"], found[other], "ms"))
    for name, (length, other) in PEAKS.items():
        found_peaks = row(peak("ours", length), peak(other, length), "MB")
        table.add(f"{name}, peak of forward + backward / {other}", found_peaks)
    table.save(json_file)


if __name__ == "__main__":
    typer.run(main)
