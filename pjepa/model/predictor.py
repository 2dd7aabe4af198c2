"""The predictor g: fills masked positions in latent space (paper Sec. 3.2).

A token-causal transformer over the whole flattened stream, A_pred(i, j) = [j <= i], at the
encoder's width. It is thrown away after training.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pjepa.model.attention import attention_plan
from pjepa.model.blocks import Block, Stack
from pjepa.model.encoder import EncoderConfig
from pjepa.model.layout import Layout
from pjepa.model.rope import rope_table


class Predictor(nn.Module):
    """g_psi of Eq. (2), with the learned mask token."""

    def __init__(self, encoder: EncoderConfig, depth: int, heads: int) -> None:
        super().__init__()
        self.encoder, self.heads = encoder, heads
        self.mask_token = nn.Parameter(torch.randn(1, encoder.width) * 0.02)
        self.blocks = Stack(
            Block(encoder.width, heads, encoder.mlp_ratio, encoder.dropout) for _ in range(depth)
        )
        self.norm = nn.LayerNorm(encoder.width)

    def fill(self, context: Tensor, target: Tensor) -> Tensor:
        """fill(.): context features at visible places, the mask token at targets (bool [N])."""
        full = self.mask_token.to(context.dtype).expand(len(target), -1)  # [N, d]
        return full.masked_scatter(~target[:, None], context)

    def forward(self, context: Tensor, target: Tensor, layout: Layout) -> Tensor:
        """Predictions at all places [N, d]; only those at targets are used."""
        config = self.encoder
        table = rope_table(layout, config.width // self.heads, config.rope_layout())
        plan = attention_plan(layout, layout.block("token_causal", 1))
        return self.norm(self.blocks.run(self.fill(context, target), table, plan))
