"""Another kernel for attention on CUDA: `python -m benchmarks.varlen [--json FILE]`.

`torch.nn.attention.varlen` computes packed sequences in bf16, but their key ranges cannot overlap,
so "the prefix and the whole own segment" (Eq. 3) is not one call. It is two, merged by
their log-sum-exps as on the CPU (`encoder/attention/plan.py`):

    A   key <= query inside takes                      one causal call
    B   key > query inside segments                    one causal call on reversed segments, where
                                                       query m sees the m tokens before it

Ours is FlexAttention, the reference this one; forward only, because varlen's own gradient ignores
the log-sum-exp that the merge depends on. The algebra is tested on the CPU
(tests/benchmarks/test_varlen.py). **Never run on a GPU**: needs one, and torch 2.14.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor

from benchmarks.workers import Table, row
from pjepa.model.attention import Layout, attend, attention_plan, layout_of_segments
from pjepa.ui.device import checked_device

# q, k, v [n, heads, d_h] and where sequences end [sequences + 1] -> output, log-sum-exp [heads, n]
Causal = Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
CASES = ((4, 4096, 45), (4, 4096, 500), (1, 16384, 45))  # takes, tokens of each, of a segment


def varlen_causal(q: Tensor, k: Tensor, v: Tensor, ends: Tensor) -> tuple[Tensor, Tensor]:
    """Return causal attention inside packed sequences by torch's kernel."""
    from torch.nn.attention.varlen import AuxRequest, varlen_attn

    longest = int(ends.diff().max())
    found = varlen_attn(
        q, k, v, ends, ends, longest, longest, return_aux=AuxRequest(lse=True), window_size=(-1, 0)
    )
    return found[0], found[1]


def ends_of(lengths: Tensor) -> Tensor:
    """Return where packed sequences begin and end, [sequences + 1]."""
    return torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()


def later_rows(lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys [n] of part B and where its sequences end, for segments of `lengths`.

    Reversed, a segment's query m + 1 stands beside key m: causal attention among them is `key
    before query`, that is later in time. A segment of one token has no such pair.
    """
    ends = lengths.cumsum(0).tolist()
    spans = [(end - size, end) for end, size in zip(ends, lengths.tolist(), strict=True)]
    queries = [torch.arange(end - 2, start - 1, -1) for start, end in spans if end - start > 1]
    keys = [torch.arange(end - 1, start, -1) for start, end in spans if end - start > 1]
    none = torch.zeros(0, dtype=torch.long)
    return torch.cat([none, *queries]), torch.cat([none, *keys]), ends_of(lengths[lengths > 1] - 1)


def split_attend(
    q: Tensor, k: Tensor, v: Tensor, takes: Tensor, segments: Tensor, causal: Causal
) -> Tensor:
    """Return clip-causal attention [N, heads, d_h] of packed takes by two causal calls.

    `takes` and `segments` are lengths, on the host.
    """
    out, lse = causal(q, k, v, ends_of(takes).to(q.device))
    queries, keys, ends = (x.to(q.device) for x in later_rows(segments))
    if not len(queries):
        return out
    more, other = causal(q[queries], k[keys], v[keys], ends)
    own = lse[:, queries]
    total = torch.logaddexp(own, other)  # [heads, n]
    first, second = ((x - total).exp().T[..., None] for x in (own, other))  # [n, heads, 1]
    merged = first * out[queries].float() + second * more.float()
    return out.index_copy(0, queries, merged.to(out.dtype))


def example(takes: int, tokens: int, segment: int, device: torch.device) -> tuple[Layout, Tensor]:
    """Return takes of equal segments and the lengths of these."""
    cut = [segment] * (tokens // segment) + [tokens % segment] * bool(tokens % segment)
    return layout_of_segments([cut] * takes).to(device), torch.tensor(cut * takes)


def milliseconds(work: Callable[[], Tensor], rounds: int = 10) -> float:
    """Return the mean time of `work` on the GPU after a round that compiles."""
    work()
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(rounds):
        work()
    torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - started) / rounds


@torch.no_grad()
def main(
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write the table.")] = None,
    heads: Annotated[int, typer.Option(help="Of the encoder.")] = 16,
    width: Annotated[int, typer.Option(help="Of a head.")] = 88,
) -> None:
    """Print ours beside the other kernel, and how far they are apart."""
    device, table = checked_device("cuda"), Table()
    for takes, tokens, segment in CASES:
        layout, lengths = example(takes, tokens, segment, device)
        sizes = torch.tensor(layout.take_lengths)
        q, k, v = torch.randn(
            3, takes * tokens, heads, width, device=device, dtype=torch.bfloat16
        ).unbind()
        ours = partial(attend, q, k, v, attention_plan(layout, layout.segment))
        other = partial(split_attend, q, k, v, sizes, lengths, varlen_causal)
        apart = float((ours() - other()).abs().max())
        case = f"{takes} x {tokens}, segments of {segment}, apart {apart:.3f}"
        table.add(case, row(milliseconds(ours), milliseconds(other), "ms"))
    table.save(json_file)


if __name__ == "__main__":
    typer.run(main)
