"""P-JEPA in a hundred lines, to read: the straightforward version of `pjepa.model`.

Takes are padded to the longest, masks are dense booleans [B, 1, T, T], context tokens are packed
to the left and padded, rotary tables are made anew for queries and keys in every layer. It
computes the same loss with the same weights as `pjepa.model.objective.Jepa`.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pjepa.model.attention import Layout, rope_table, rotate
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import Block, ProcedureEncoder
from pjepa.model.objective import Batch, Jepa


def padded(x: Tensor, lengths: tuple[int, ...]) -> Tensor:
    """Return packed rows [N, ...] as [B, T, ...] with zeros at the end of each take."""
    return nn.utils.rnn.pad_sequence(list(torch.split(x, list(lengths))), batch_first=True)


def turned(x: Tensor, segment: Tensor, offset: Tensor, config: EncoderConfig) -> Tensor:
    """Return x [B, heads, T, d_h] rotated, its table made here."""
    batch, heads, tokens, width = x.shape
    flat = Layout((batch * tokens,), segment.flatten(), offset.flatten(), offset.flatten())
    rows = x.transpose(1, 2).reshape(batch * tokens, heads, width)
    rows = rotate(rows, rope_table(flat, heads, config))
    return rows.view(batch, tokens, heads, width).transpose(1, 2)


def plain_block(
    block: nn.Module,
    x: Tensor,
    segment: Tensor,
    offset: Tensor,
    mask: Tensor,
    config: EncoderConfig,
) -> Tensor:
    """Return one block over padded tokens x [B, T, d] under a dense mask [B, 1, T, T]."""
    assert isinstance(block, Block)
    heads = block.attn.heads
    qkv = block.attn.qkv(block.norm1(x)).unflatten(-1, (3, heads, -1))  # [B, T, 3, heads, d_h]
    q, k, v = qkv.permute(2, 0, 3, 1, 4)  # [B, heads, T, d_h]
    q, k = turned(q, segment, offset, config), turned(k, segment, offset, config)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    x = x + block.attn.proj(out.transpose(1, 2).flatten(2))
    return x + block.mlp(block.norm2(x))


def plain_encoder(
    encoder: ProcedureEncoder, x: Tensor, segment: Tensor, offset: Tensor, valid: Tensor
) -> Tensor:
    """Return the clip-causal encoder over padded takes [B, T, d_in]."""
    mask = (segment[:, None, :] <= segment[:, :, None]) & valid[:, None, :]
    mask = mask | torch.eye(mask.shape[1], dtype=torch.bool)  # padded rows must see something
    x = encoder.proj(x)
    for block in encoder.blocks:
        x = plain_block(block, x, segment, offset, mask[:, None], encoder.config)
    return encoder.norm(x)


class PlainJepa(nn.Module):
    """The same three networks as `Jepa`, run the obvious way."""

    def __init__(self, model: Jepa) -> None:
        super().__init__()
        self.model = copy.deepcopy(model)

    def loss(self, batch: Batch) -> Tensor:
        """Return the loss of Eq. 2, mean over channels."""
        model, lengths = self.model, batch.layout.take_lengths
        hidden = torch.zeros(len(batch), dtype=torch.bool).index_fill_(0, batch.mask.target, True)
        x, target = padded(batch.features, lengths), padded(hidden, lengths)
        segment, offset = (padded(v, lengths) for v in (batch.layout.segment, batch.layout.offset))
        valid = padded(torch.ones_like(hidden), lengths)
        with torch.no_grad():
            goal = plain_encoder(model.teacher, x, segment, offset, valid)
        seen = plain_student(model.student, x, segment, offset, valid & ~target)
        filled = torch.where((valid & ~target)[..., None], seen, model.predictor.mask_token[None])
        filled = filled * valid[..., None]
        tokens = x.shape[1]
        causal = torch.ones(tokens, tokens, dtype=torch.bool).tril()[None] & valid[:, None, :]
        causal = causal | torch.eye(tokens, dtype=torch.bool)
        config = model.student.config
        for block in model.predictor.blocks:
            filled = plain_block(block, filled, segment, offset, causal[:, None], config)
        error = (model.predictor.norm(filled) - goal).abs().mean(dim=-1)
        return error[target].mean()


def plain_student(
    encoder: ProcedureEncoder, x: Tensor, segment: Tensor, offset: Tensor, context: Tensor
) -> Tensor:
    """Return the student on context tokens packed left, scattered back with zeros [B, T, d]."""
    counts = tuple(int(row.sum()) for row in context)
    seen, at, place = (padded(v[context], counts) for v in (x, segment, offset))
    valid = padded(torch.ones(sum(counts), dtype=torch.bool), counts)
    found = plain_encoder(encoder, seen, at, place, valid)  # [B, C, d]
    full = found.new_zeros(*context.shape, found.shape[-1])
    return full.masked_scatter(context[..., None], found[valid])
