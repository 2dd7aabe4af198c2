"""The reference of the training benchmark computes the same loss and gradient as the model."""

import torch

from benchmarks.train_step import synthetic_take
from examples.pjepa_plain import PlainJepa
from pjepa.pretrain.config import PjepaConfig
from pjepa.pretrain.data import pack, view
from pjepa.pretrain.feed import FileTokens
from pjepa.pretrain.setup import measure, new_model


def test_the_straightforward_version_is_the_same_model():
    config = PjepaConfig(width=32, heads=4, predictor_heads=2, depth=2, input_norm="none")
    takes = [synthetic_take(n, tokens, 24) for n, tokens in enumerate((50, 90, 150))]
    model = new_model(config, takes, measure(takes))
    tokens = FileTokens(takes, torch.device("cpu"))
    batch = pack([view(take, 0, config) for take in takes], 0, config, tokens)
    plain = PlainJepa(model)
    ours, theirs = model.loss(batch), plain.loss(batch)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=0)
    ours.backward()
    theirs.backward()
    for a, b in zip(model.trained_parameters(), plain.model.trained_parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, atol=1e-6, rtol=1e-4)
