"""The MLP of every transformer block here.

Unlike elsewhere, not timm's, which has the same layers and names: importing it loads all models of
timm, torchvision and torch's compiler, about as long as torch itself, in every process.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F


class Mlp(nn.Module):
    """The MLP fc2(gelu(fc1 x)), with dropout after both."""

    def __init__(self, width: int, hidden: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, hidden)
        self.fc2 = nn.Linear(hidden, width)
        self.drop = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.drop(self.fc2(self.drop(F.gelu(self.fc1(x)))))
        return out
