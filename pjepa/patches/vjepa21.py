"""The V-JEPA 2.1 video encoder (arXiv 2603.14482), written on torch and timm blocks.

    x   = Conv3d(video) + modality vector               # one token per 2 x 16 x 16 tubelet
    x  += W_o softmax(R(q) R(k)^T / sqrt(d)) v,   q, k, v = W_qkv LN(x)
    x  += MLP(LN(x))
    out = LN_3(x)                                       # hierarchical: LN_j at 4 depths

R rotates adjacent channel pairs by angles of the token's (time, row, column). Parameter names equal
the official ones, so released files load with `strict=True`.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pjepa.nn.layers import Mlp

RELEASE_URL = "https://dl.fbaipublicfiles.com/vjepa2/"
PATCH = 16
TUBELET = 2
LAST_POSITION = 15.0  # rows and columns are rescaled to 0..15 at every resolution
EPS = 1e-6


@dataclass(frozen=True)
class Variant:
    """Sizes of one encoder and, where Meta released it, its file."""

    width: int
    depth: int
    heads: int  # not visible in tensor shapes: a wrong count loads and gives wrong features
    mlp_hidden: int
    levels: tuple[int, ...]  # layers with a norm of their own, 0-based; features are the last's
    file: str | None = None
    encoder_key: str | None = None
    bytes: int | None = None  # of the file, where someone measured it
    sha256: str | None = None
    crop: int = 384  # pixels a side it was trained for

    @property
    def head_dim(self) -> int:
        return self.width // self.heads

    @property
    def url(self) -> str:
        """Return where the released file is."""
        return f"{RELEASE_URL}{self.file}"


VARIANTS: dict[str, Variant] = {
    "vjepa2_1_vit_tiny": Variant(64, 4, 4, 256, (0, 1, 2, 3)),
    "vjepa2_1_vit_base_384": Variant(
        768, 12, 12, 3072, (2, 5, 8, 11), "vjepa2_1_vitb_dist_vitG_384.pt", "ema_encoder",
        1_664_223_428, "848a77c33cc9e6649ed2119c9bea1e2c569bcdab9539ff3e7c02ccc2959ddf4d",
    ),
    "vjepa2_1_vit_large_384": Variant(
        1024, 24, 16, 4096, (5, 11, 17, 23), "vjepa2_1_vitl_dist_vitG_384.pt", "ema_encoder",
        5_151_198_524, "7ea9b7cb4a75d10644a8a8d42cff9e177b10dca8f02173f0eaf2b0bed82838c6",
    ),
    "vjepa2_1_vit_giant_384": Variant(
        1408, 40, 22, 6144, (9, 19, 29, 39), "vjepa2_1_vitg_384.pt", "target_encoder",
    ),
    "vjepa2_1_vit_gigantic_384": Variant(
        1664, 48, 26, 8192, (11, 23, 37, 47), "vjepa2_1_vitG_384.pt", "target_encoder",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class PatchGrid:
    """Number of tokens along time, rows and columns."""

    steps: int
    rows: int
    columns: int

    @property
    def cells(self) -> int:
        return self.rows * self.columns


@dataclass(frozen=True)
class AngleTable:
    """Cosine and sine of every token's angles, one per channel pair, float32."""

    cos: Tensor  # [..., N, head_dim / 2]
    sin: Tensor  # [..., N, head_dim / 2]
    turns: Tensor  # cos + i sin

    @staticmethod
    def of(angles: Tensor) -> "AngleTable":
        """Return the table of angles [N, head_dim / 2]."""
        cos, sin = angles.cos(), angles.sin()
        return AngleTable(cos, sin, torch.complex(cos, sin))

    def at(self, keep: Tensor) -> "AngleTable":
        """Return the rows of the kept token ids [B, K], for all heads: [B, 1, K, ...]."""
        cos, sin, turns = (x[keep].unsqueeze(1) for x in (self.cos, self.sin, self.turns))
        return AngleTable(cos, sin, turns)


def grid_of(video: Tensor) -> PatchGrid:
    """Return the token grid of a video [B, 3, T, H, W]; remainders are dropped (official)."""
    steps = max(video.shape[2] // TUBELET, 1)
    return PatchGrid(steps, video.shape[3] // PATCH, video.shape[4] // PATCH)


def token_positions(grid: PatchGrid, device: torch.device) -> Tensor:
    """Return positions (time, row, column) of every token, [3, N] float32.

    Rows and columns end at 15 whatever the resolution; time stays a plain step index.
    A single row or column sits at 0 (the official code divides 0 by 0 there).
    """
    ids = torch.arange(grid.steps * grid.cells, device=device)
    time = ids // grid.cells
    row = (ids % grid.cells) // grid.columns
    column = ids % grid.columns
    row_scaled = row.float() * LAST_POSITION / max(grid.rows - 1, 1)
    column_scaled = column.float() * LAST_POSITION / max(grid.columns - 1, 1)
    return torch.stack([time.float(), row_scaled, column_scaled])  # [3, N]


def rope_table_from_positions(positions: Tensor, head_dim: int) -> AngleTable:
    """Return the rotation table for positions [3, N]: a third of the channels per axis."""
    axis_width = 2 * ((head_dim // 3) // 2)
    pairs = torch.arange(axis_width // 2, device=positions.device, dtype=torch.float32)
    frequencies = 10000.0 ** (-pairs / (axis_width / 2))  # [axis_width / 2]
    angles = positions[:, :, None] * frequencies  # [3, N, axis_width / 2]
    angles = angles.permute(1, 0, 2).flatten(1)  # [N, 3 * axis_width / 2]
    rest = (head_dim - 3 * axis_width) // 2
    return AngleTable.of(F.pad(angles, (0, rest)))  # angle 0 leaves a pair as it is


@lru_cache(maxsize=8)
def rope_table(grid: PatchGrid, head_dim: int, device: torch.device) -> AngleTable:
    """Return the rotation table of a grid, computed once and shared by all layers and calls."""
    return rope_table_from_positions(token_positions(grid, device), head_dim)


def rotate(x: Tensor, rope: AngleTable) -> Tensor:
    """Return x [B, heads, N, head_dim] rotated pair by pair; float32 inside, x's dtype outside.

    As complex numbers a rotation is one product, a tenth of the time of the plain formula; a
    compiler, which fuses the formula, does not know them.
    """
    pairs = x.float().unflatten(-1, (-1, 2))  # [B, heads, N, head_dim / 2, 2]
    if torch.compiler.is_compiling():
        even, odd = pairs.unbind(-1)
        real = even * rope.cos - odd * rope.sin
        turned = torch.stack([real, odd * rope.cos + even * rope.sin], dim=-1)
    else:
        turned = torch.view_as_real(torch.view_as_complex(pairs) * rope.turns)
    return turned.flatten(-2).to(x.dtype)


class Attention(nn.Module):
    """Full bidirectional attention with rotated queries and keys."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)

    def forward(self, x: Tensor, rope: AngleTable) -> Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each [B, heads, N, head_dim]
        out = F.scaled_dot_product_attention(rotate(q, rope), rotate(k, rope), v)
        return self.proj(out.transpose(1, 2).reshape(batch, tokens, width))


class Block(nn.Module):
    """Pre-norm transformer block."""

    def __init__(self, variant: Variant) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(variant.width, eps=EPS)
        self.attn = Attention(variant.width, variant.heads)
        self.norm2 = nn.LayerNorm(variant.width, eps=EPS)
        self.mlp = Mlp(variant.width, variant.mlp_hidden)

    def forward(self, x: Tensor, rope: AngleTable) -> Tensor:
        x = x + self.attn(self.norm1(x), rope)
        return x + self.mlp(self.norm2(x))


class PatchEmbed(nn.Module):
    """Non-overlapping tubelets projected to tokens, (time, row, column) order."""

    def __init__(self, width: int, tubelet: int) -> None:
        super().__init__()
        size = (tubelet, PATCH, PATCH)
        self.proj = nn.Conv3d(3, width, kernel_size=size, stride=size)

    def forward(self, video: Tensor) -> Tensor:
        return self.proj(video).flatten(2).transpose(1, 2)  # [B, N, D]


class VJEPA21Encoder(nn.Module):
    """V-JEPA 2.1 encoder; one frame takes the image path, more frames the video path."""

    def __init__(self, variant: Variant) -> None:
        super().__init__()
        self.variant = variant
        width = variant.width
        self.img_mod_embed = nn.Parameter(torch.zeros(1, 1, width))
        self.video_mod_embed = nn.Parameter(torch.zeros(1, 1, width))
        self.patch_embed = PatchEmbed(width, TUBELET)
        self.patch_embed_img = PatchEmbed(width, 1)
        self.blocks = nn.ModuleList(Block(variant) for _ in range(variant.depth))
        self.norms_block = nn.ModuleList(nn.LayerNorm(width, eps=EPS) for _ in variant.levels)

    def embed(self, video: Tensor, keep: Tensor | None = None) -> Tensor:
        """Return tokens entering block 0, [B, N, D]; [B, K, D] if only ids [B, K] are kept."""
        _check_video(video)
        if video.shape[2] == 1:
            x = self.patch_embed_img(video) + self.img_mod_embed
        else:
            x = self.patch_embed(video) + self.video_mod_embed
        return x if keep is None else x.gather(1, keep[:, :, None].expand(-1, -1, x.shape[2]))

    def _levels(self, video: Tensor, keep: Tensor | None, tapped: tuple[int, ...]) -> list[Tensor]:
        """Return the normalised outputs [B, N, D] of the tapped blocks, shallow to deep."""
        x = self.embed(video, keep)
        rope = rope_table(grid_of(video), self.variant.head_dim, video.device)
        rope = rope if keep is None else rope.at(keep)
        norms = dict(zip(self.variant.levels, self.norms_block, strict=True))
        outputs = []
        for index, block in enumerate(self.blocks):
            x = block(x, rope)
            if index in tapped:
                outputs.append(norms[index](x))
        return outputs

    def forward(self, video: Tensor, keep: Tensor | None = None) -> Tensor:
        """Return patch features [B, N, D] of a normalised video [B, 3, T, H, W]."""
        return self._levels(video, keep, self.variant.levels[-1:])[0]

    def hierarchical(self, video: Tensor, keep: Tensor | None = None) -> Tensor:
        """Return the four levels side by side, [B, N, 4 D]; the last D channels equal `forward`."""
        return torch.cat(self._levels(video, keep, self.variant.levels), dim=-1)


def _check_video(video: Tensor) -> None:
    if video.ndim != 5 or video.shape[1] != 3 or min(video.shape[3:]) < PATCH:
        raise ValueError(
            f"expected a video [B, 3, T, H, W] with H, W >= {PATCH}, found {list(video.shape)}; "
            "give images as [B, 3, 1, H, W]"
        )


def initialise(encoder: VJEPA21Encoder, generator: torch.Generator) -> VJEPA21Encoder:
    """Return the encoder with fresh weights, drawn in parameter order from `generator`.

    Weights normal std 0.02, biases 0, LayerNorm (1, 0), modality vectors std 1e-6; each block's
    output projections are divided by sqrt(2 (i + 1)).
    """
    with torch.no_grad():
        for name, parameter in encoder.named_parameters():
            if name.endswith("mod_embed"):
                parameter.normal_(0.0, 1e-6, generator=generator)
            elif parameter.ndim > 1:
                parameter.normal_(0.0, 0.02, generator=generator)
            else:
                parameter.fill_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
        for index, block in enumerate(encoder.blocks):
            for weight in (block.attn.proj.weight, block.mlp.fc2.weight):  # type: ignore[union-attr]
                weight.div_((2.0 * (index + 1)) ** 0.5)  # type: ignore[operator]
    return encoder
