"""The predictor g: fills masked positions in latent space (paper Sec. 3.2).

A token-causal transformer over the whole flattened stream, A_pred(i, j) = [j <= i], at the
encoder's width. It is thrown away after training.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from pjepa.model.attention import Layout, attention_plan, rope_table
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import Block, Stack
from pjepa.model.masking import Mask


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

    def forward(self, context: Tensor, layout: Layout, mask: Mask) -> Tensor:
        """Return predictions z_hat_M [M, d] of context features [C, d].

        fill(.) puts context features at visible places, the mask token at targets. All targets
        enter alike but for their place, so the first block projects the mask token once.
        """
        table = rope_table(layout, self.heads, self.encoder)
        plan = attention_plan(layout, layout.block("token_causal", 1))
        x = torch.cat([context, self.mask_token.to(context.dtype)])  # [C + 1, d]
        fill = torch.full_like(layout.index, len(context))  # [N] rows of x
        fill[mask.context] = torch.arange(len(context), device=fill.device)
        return self.norm(self.blocks.run(x, table, plan, mask.target, fill))
