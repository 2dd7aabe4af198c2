"""Clip-causal attention from two causal calls, merged by log-sum-exp, is the whole thing."""

import math

import pytest
import torch

from benchmarks.varlen import split_attend
from pjepa.model.attention import attend, attention_plan, layout_of_segments


def plain_causal(q, k, v, ends):
    """The kernel's contract, one sequence and one dense matrix at a time."""
    outs, sums = [], []
    for start, stop in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        a, b, c = (x[start:stop].transpose(0, 1) for x in (q, k, v))  # [heads, n, d]
        scores = a @ b.mT * q.shape[-1] ** -0.5
        scores = scores.masked_fill(
            torch.ones(stop - start, stop - start).triu(1).bool(), -math.inf
        )
        outs.append((scores.softmax(-1) @ c).transpose(0, 1))
        sums.append(scores.logsumexp(-1))
    return torch.cat(outs), torch.cat(sums, dim=1)


@pytest.mark.parametrize("cut", [[[1]], [[1, 1, 1]], [[7]], [[5, 1, 9], [3], [1, 20, 1, 2]]])
def test_two_causal_calls_are_clip_causal_attention(cut):
    layout = layout_of_segments(cut)
    generator = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, len(layout.index), 2, 8, generator=generator)
    lengths = torch.tensor([size for take in cut for size in take])
    found = split_attend(q, k, v, torch.tensor(layout.take_lengths), lengths, plain_causal)
    expected = attend(q, k, v, attention_plan(layout, layout.segment))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
