"""Growing prefixes of a take, many at once on a GPU."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from pjepa.core.runs import Span
from pjepa.probes.base.temporal import TemporalProbe
from pjepa.ui.transfer import sent

TOGETHER = 1 << 16  # tokens, padding included, that a GPU gets at once


class WholeTakeProbe(TemporalProbe):
    """A probe whose predictions depend on the whole take, so that every prefix is a run of its own.

    One prefix alone leaves a GPU idle. A CPU gains nothing.
    """

    def predict_together(self, takes: Sequence[Tensor]) -> Tensor:
        """Return the probabilities [B, T, C] of takes [T_i, D], each as if it were alone."""
        raise NotImplementedError

    def one_by_one(self, features: Tensor) -> bool:
        """Return whether prefixes have to be, or should be, predicted one after the other."""
        return features.device.type == "cpu"

    def predict_newest(
        self, features: Tensor, segments: Tensor, spans: Sequence[Span]
    ) -> Iterator[Tensor]:
        """Yield the probabilities of each span from its prefix."""
        if self.one_by_one(features):
            yield from super().predict_newest(features, segments, spans)
            return
        for part in together(spans):
            found = self.predict_together([features[:end] for _, end in part])
            yield from (row[start:end] for row, (start, end) in zip(found, part, strict=True))


def together(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """Yield neighbouring spans whose prefixes, padded to the longest, are few enough tokens."""
    part: list[Span] = []
    for span in spans:
        if part and (len(part) + 1) * span[1] > TOGETHER:
            yield part
            part = []
        part.append(span)
    if part:
        yield part


def padded(takes: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return takes [T_i, D] as [B, T, D], padded on the right, and bool [B, T]: no padding."""
    lengths = torch.tensor([len(take) for take in takes])
    valid = torch.arange(int(lengths.max())) < lengths[:, None]
    return pad_sequence(list(takes), batch_first=True), sent(valid, takes[0].device)
