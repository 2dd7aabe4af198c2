"""The attentive probe sees its window and nothing else, and stitches chunks without a seam."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pjepa.probes.attentive.config import AttentiveConfig
from pjepa.probes.attentive.probe import AttentiveProbe
from pjepa.probes.base.trained import Task

WIDTH, CLASSES = 5, 3
KINDS = ("causal", "chunk")


def probe(kind: str = "causal", **changes: int) -> AttentiveProbe:
    settings = {"window": 11, "chunk": 4, "width": 8, "heads": 2, **changes}
    config = AttentiveConfig(chunk_attention=kind, **settings)  # type: ignore[arg-type]
    torch.manual_seed(0)
    made = AttentiveProbe(config, Task(WIDTH, CLASSES)).eval()
    with torch.no_grad():
        made.position.mul_(20)  # positions that matter
    return made


def features(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(seed))


def predicted(made: AttentiveProbe, x: Tensor) -> Tensor:
    with torch.no_grad():
        return made.predict(x, torch.zeros(len(x), dtype=torch.long))


def slow_logits(made: AttentiveProbe, x: Tensor) -> Tensor:
    """One token at a time: its chunk, its window, plain softmax attention, one layer."""
    c, block = made.config, made.blocks[-1]
    rows = []
    for t in range(len(x)):
        end = (t // c.chunk + 1) * c.chunk
        last = t + 1 if c.chunk_attention == "causal" else min(end, len(x))
        seen = range(max(0, end - c.window), last)
        place = torch.tensor([i - (end - c.window) for i in seen])
        h = made.project(x[list(seen)]) + made.position[place]  # [S, d]
        own = h[list(seen).index(t)]
        q = block.query(block.norm1(own)).view(c.heads, -1)
        k, v = block.key_value(block.norm1(h)).view(len(h), 2, c.heads, -1).unbind(1)
        out = []
        for head in range(c.heads):
            weight = (k[:, head] @ q[head] / q.shape[1] ** 0.5).softmax(0)
            out.append(weight @ v[:, head])
        own = own + block.proj(torch.cat(out))
        own = own + block.mlp(block.norm2(own))
        rows.append(made.head(made.norm(own)))
    return torch.stack(rows)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 3, 4, 10, 30])
def test_equals_one_token_at_a_time(kind: str, count: int) -> None:
    made, x = probe(kind), features(count)
    with torch.no_grad():
        found = made(x, torch.zeros(count, dtype=torch.long))
        torch.testing.assert_close(found, slow_logits(made, x), atol=1e-5, rtol=0)
    torch.testing.assert_close(predicted(made, x), found.softmax(1), atol=1e-6, rtol=0)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 40), st.data(), st.sampled_from(KINDS), st.integers(1, 2))
def test_the_future_changes_nothing_before(
    count: int, data: st.DataObject, kind: str, depth: int
) -> None:
    made, x = probe(kind, depth=depth), features(count)
    cut = data.draw(st.integers(0, count - 1))
    other = torch.cat([x[:cut], 100 * features(count - cut, 1)])
    ends = made.sight.ends(np.zeros(count, np.int64))
    untouched = torch.from_numpy(ends <= cut)  # predictions that may not depend on the change
    same = predicted(made, x)[untouched]
    assert torch.equal(same, predicted(made, other)[untouched])
    assert len(same) == (cut if kind == "causal" else cut // 4 * 4)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="chunk 8 does not fit in window 4"):
        AttentiveConfig(window=4, chunk=8)
    with pytest.raises(ValueError, match="heads 3 does not divide width 8"):
        AttentiveConfig(width=8, heads=3)
