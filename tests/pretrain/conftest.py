import numpy as np
import pytest
import torch

from pjepa.pretrain.config import PjepaConfig
from pjepa.pretrain.data import TrainingTake, pack, view
from pjepa.pretrain.feed import FileTokens


def some_takes(count=6):
    """Small takes with a per-take style, segments of about five tokens."""
    rng = np.random.default_rng(0)
    made = []
    for number in range(count):
        tokens = int(rng.integers(20, 40))
        segment = np.sort(rng.integers(0, 6, tokens))
        _, segment = np.unique(segment, return_inverse=True)
        features = (rng.normal(size=(tokens, 8)) + 3 * rng.normal(size=8)).astype(np.float16)
        made.append(TrainingTake(number, f"take-{number}", features, segment.astype(np.int64)))
    return made


@pytest.fixture
def takes():
    return some_takes()


@pytest.fixture(params=[None, (-2, -1, 1, 2)], ids=["eq2", "neighbours"])
def config(request):
    """A small model, with Eq. 2 alone, and with the neighbour term and exchanged segments."""
    return PjepaConfig(
        width=16, heads=2, predictor_heads=2, depth=1, predictor_depth=1, epochs=6, lr=1e-3,
        ema=0.9, milestones=(4,), batch_tokens=60, snapshot_every=3, threads=1, warmup_steps=3,
        neighbours=request.param, exchange=0.5 if request.param else 0.0,
    )  # fmt: skip


def changed(config, **changes):
    return config.model_copy(update=changes)


def tokens_of(takes):
    return FileTokens(takes, torch.device("cpu"))


def packed(takes, config):
    """Whole takes as one batch."""
    return pack([view(take, 0, config) for take in takes], 0, config, tokens_of(takes))
