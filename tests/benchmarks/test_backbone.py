"""The reference of the backbone benchmark computes the same features as the encoder."""

import torch

from benchmarks.backbone import plain_features
from pjepa.patches.checkpoint import build_encoder


@torch.no_grad()
def test_the_plain_version_is_the_same_encoder() -> None:
    encoder = build_encoder("vjepa2_1_vit_tiny", "random", 0)
    video = torch.randn(2, 3, 4, 48, 80)
    torch.testing.assert_close(plain_features(encoder, video), encoder(video), atol=1e-5, rtol=0)
