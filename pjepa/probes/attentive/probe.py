"""The streaming attentive probe (paper Sec. 3.3, Supplement): attention over a window of the past.

The take is cut into chunks of `chunk` tokens. A chunk is predicted from a window of `window` tokens
that ends with it; positions are learned and counted inside the window, so a chunk always stands at
its end. Predictions are stitched chunk by chunk. The supplement leaves open whether the tokens of
one chunk see each other; `chunk_attention` decides, and `sight` reports how far that looks ahead.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from pjepa.core.runs import Span
from pjepa.nn.layers import Mlp
from pjepa.probes.attentive.config import CONFIG, AttentiveConfig
from pjepa.probes.base.scoring import Sight
from pjepa.probes.base.trained import Task, TemporalProbe, TrainedKind

BATCH_WINDOWS = 32  # windows attended at once when nothing is trained: bounds the memory


class WindowBlock(nn.Module):
    """A pre-norm transformer layer whose queries are the last tokens of the window."""

    def __init__(self, config: AttentiveConfig) -> None:
        super().__init__()
        width = config.width
        self.heads, self.dropout = config.heads, config.dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key_value = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.proj = nn.Linear(width, width)
        self.mlp = Mlp(width, int(width * config.mlp_ratio), config.dropout)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, mask: Tensor, queries: int) -> Tensor:
        """Return x [K, W, d] -> [K, queries, d].

        Mask [K, queries, W] is True where a query may look.
        """
        seen = self.norm1(x)
        q = self.query(seen[:, -queries:]).unflatten(2, (self.heads, -1)).transpose(1, 2)
        k, v = self.key_value(seen).unflatten(2, (2, self.heads, -1)).permute(2, 0, 3, 1, 4)
        p = self.dropout if self.training else 0.0
        out = scaled_dot_product_attention(q, k, v, mask[:, None], p)  # [K, heads, queries, d_h]
        x = x[:, -queries:] + self.drop(self.proj(out.transpose(1, 2).flatten(2)))
        return x + self.mlp(self.norm2(x))


class AttentiveProbe(TemporalProbe):
    """Projection, learned positions, transformer layers over windows, one affine classifier."""

    def __init__(self, config: AttentiveConfig, task: Task) -> None:
        super().__init__()
        self.config = config
        self.project = nn.Linear(task.width, config.width)
        self.position = nn.Parameter(torch.randn(config.window, config.width) * 0.02)
        self.drop = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(WindowBlock(config) for _ in range(config.depth))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, task.classes)
        causal = config.chunk_attention == "causal"
        self.sight = Sight("token") if causal else Sight("block", config.chunk)

    def forward(self, features: Tensor, segments: Tensor) -> Tensor:
        """Return the logits [T, C] of features [T, D]."""
        count = len(features)
        starts = torch.arange(0, count, self.config.chunk, device=features.device)
        return self.window_logits(features, starts, starts * 0 + count).flatten(0, 1)[:count]

    def loss(self, outputs: Tensor, labels: Tensor) -> Tensor:
        """Return the mean cross entropy over the known tokens; 0 if there is none."""
        total = cross_entropy(outputs, labels, ignore_index=-1, reduction="sum")
        return total / (labels >= 0).sum().clamp_min(1)

    def predict(self, features: Tensor, segments: Tensor) -> Tensor:
        """Return class probabilities [T, C]."""
        whole = [(0, len(features))]
        return next(iter(self.predict_newest(features, segments, whole)))

    def predict_newest(
        self, features: Tensor, segments: Tensor, spans: Sequence[Span]
    ) -> Iterator[Tensor]:
        """Yield the newest tokens of every prefix.

        Only the chunks that hold them are run, those of many prefixes at once.
        """
        if not spans:
            return
        chunk, device = self.config.chunk, features.device
        rows = [range(start // chunk * chunk, end, chunk) for start, end in spans]
        ends = [end for row, (_, end) in zip(rows, spans, strict=True) for _ in row]
        starts = torch.tensor([start for row in rows for start in row], device=device)
        limits = torch.tensor(ends, device=device)
        parts = zip(starts.split(BATCH_WINDOWS), limits.split(BATCH_WINDOWS), strict=True)
        logits = torch.cat([self.window_logits(features, *part) for part in parts])
        by_span = logits.split([len(row) for row in rows])
        for row, (start, end), part in zip(rows, spans, by_span, strict=True):
            yield part.flatten(0, 1)[start - row.start : end - row.start].softmax(1)

    def window_logits(self, features: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
        """Return the logits [K, chunk, C] of the chunks at `starts`, seeing nothing from `ends` on.

        Rows of a chunk beyond its end hold no prediction.
        """
        window, chunk = self.config.window, self.config.chunk
        place = torch.arange(window, device=features.device) - (window - chunk)  # from the chunk
        index = starts[:, None] + place  # [K, W] token of every place of the window
        valid = (index >= 0) & (index < ends[:, None])
        first, last = max(int(index.min()), 0), min(int(index.max()), len(features) - 1)
        seen = self.project(features[first : last + 1])
        x = self.drop(seen[index.clamp(first, last) - first] + self.position)  # [K, W, d]
        for block in self.blocks[:-1]:
            x = block(x, self.mask(valid, window), window)
        x = self.blocks[-1](x, self.mask(valid, chunk), chunk)
        return self.head(self.norm(x))

    def mask(self, valid: Tensor, queries: int) -> Tensor:
        """Return [K, queries, W]: which places the last `queries` places of a window may look at.

        Every place may look at itself, so that no row is empty; empty places are never looked at
        by others.
        """
        window = self.config.window
        place = torch.arange(window, device=valid.device)
        own = place[-queries:, None]
        if self.config.chunk_attention == "causal":
            allowed = place <= own  # [queries, W]
        else:  # the past never looks at the chunk that follows it
            past = window - self.config.chunk
            allowed = (place < past) | (own >= past)
        return (allowed & valid[:, None]) | (place == own)


KIND = TrainedKind("attentive", CONFIG, AttentiveProbe)
