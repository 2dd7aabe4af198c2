"""An encoder's features of a take of which it saw less, or in another order.

The tests of the release on surgical video, for any encoder and any take.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from pjepa.core.runs import runs
from pjepa.encoder.attention.layout import Layout, layout_of_segments
from pjepa.encoder.encoder import ProcedureEncoder
from pjepa.features.encoded import encoded
from pjepa.streams.segments import attention_segments
from pjepa.streams.store import Take
from pjepa.ui.errors import InputError

TOGETHER = 4096  # tokens of windows that are encoded in one call
ContextWindow = tuple[int, int, int]  # first token, first token of the last block, end


def budgeted(encoder: ProcedureEncoder, take: Take, past: int) -> np.ndarray:
    """Return features [T, d] for which the encoder saw each block and `past` blocks before it.

    Tokens keep their absolute positions c(i), r(i); a block is what attention calls one (Eq. 3).
    """
    if encoder.config.attention == "bidirectional":
        raise InputError(
            "bidirectional attention has one block only; a budget of blocks has no effect"
        )
    segments = encoder.segments(take.features, take.segment, f"take {take.take_id}")
    layout = layout_of_segments([runs(segments)[1].tolist()])
    block = layout.block(encoder.config.attention, encoder.config.block).numpy()
    found = [
        _last_blocks(encoder, take.features, layout, batch)
        for batch in _batches(_windows(block, past))
    ]
    return np.concatenate(found)


def _windows(block: np.ndarray, past: int) -> list[ContextWindow]:
    starts, lengths = runs(block)
    firsts = starts[np.maximum(np.arange(len(starts)) - past, 0)]
    return list(zip(firsts.tolist(), starts.tolist(), (starts + lengths).tolist(), strict=True))


def _batches(windows: Sequence[ContextWindow]) -> Iterator[list[ContextWindow]]:
    """Yield windows in order, as many as `TOGETHER` tokens allow but at least one."""
    batch: list[ContextWindow] = []
    for window in windows:
        held = sum(end - first for first, _, end in [*batch, window])
        if batch and held > TOGETHER:
            yield batch
            batch = []
        batch.append(window)
    yield batch


@torch.inference_mode()
def _last_blocks(
    encoder: ProcedureEncoder, features: np.ndarray, layout: Layout, windows: list[ContextWindow]
) -> np.ndarray:
    """Return the features of the last block of every window; windows are packed as takes are."""
    rows = torch.cat([torch.arange(first, end) for first, _, end in windows])
    last = torch.cat([torch.arange(first, end) >= start for first, start, end in windows])
    device = encoder.mean.device
    x = torch.as_tensor(features, dtype=torch.float32)[rows].to(device)
    parts = layout.at(rows, tuple(end - first for first, _, end in windows)).to(device)
    return encoder(x, parts, last.nonzero()[:, 0].to(device)).float().cpu().numpy()


def shuffled_rows(take: Take, block: int, seed: int) -> np.ndarray:
    """Return the tokens [T] of a take in a random order of its segments, by `seed` and take id.

    Segments are the annotated ones, gaps between them included, or else blocks of `block` tokens.
    """
    annotated = (take.segment >= 0).any()
    fixed = np.arange(len(take.segment)) // block
    ids = attention_segments(take.segment) if annotated else fixed
    starts, lengths = runs(ids)
    random = np.random.default_rng([seed, zlib.crc32(take.take_id.encode())])
    parts = [np.arange(starts[i], starts[i] + lengths[i]) for i in random.permutation(len(starts))]
    return np.concatenate(parts)


def shuffled(encoder: ProcedureEncoder, take: Take, seed: int) -> np.ndarray:
    """Return features [T, d], in the take's own order, of an encoder that saw it shuffled."""
    rows = shuffled_rows(take, encoder.config.block, seed)
    segment = take.segment
    if (segment >= 0).any():
        segment = attention_segments(attention_segments(segment)[rows]).astype(np.int32)
    moved = replace(take, features=take.features[rows], segment=segment)
    found = encoded(encoder, moved)
    back = np.empty_like(found)
    back[rows] = found
    return back
