import numpy as np
import pytest
import torch

from benchmarks.memorised import explained
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.neighbours import NeighbourHeads
from pjepa.streams.stream import Take


def take(name: str, draw: np.random.Generator) -> Take:
    lengths = [3, 1, 4]
    place = np.repeat(np.arange(3), lengths)
    features = draw.normal(size=(8, 6)).astype(np.float32)
    offset = np.concatenate([np.arange(n) for n in lengths])
    return Take(name, features, np.arange(8) / 4, place, offset)


def model() -> tuple[ProcedureEncoder, NeighbourHeads]:
    torch.manual_seed(0)
    config = EncoderConfig(d_in=6, width=8, depth=1, heads=2, mlp_ratio=1.0, segments="annotated")
    return ProcedureEncoder(config).eval(), NeighbourHeads(8, 6, (-1, 0, 1))


@torch.inference_mode()
def test_explained_is_one_minus_the_share_of_the_error():
    encoder, heads = model()
    draw = np.random.default_rng(0)
    takes = [take("a", draw), take("b", draw)]
    error, variance = dict.fromkeys(heads.places, 0.0), dict.fromkeys(heads.places, 0.0)
    for one in takes:
        features = encoder.encode(one.features, [3, 1, 4])
        for k in heads.places:
            for token, segment in enumerate(one.segment):
                if 0 <= segment + k < 3:
                    mean = torch.from_numpy(one.features[one.segment == segment + k].mean(axis=0))
                    told = heads(features[token : token + 1], k)[0]
                    error[k] += float((told - mean).square().sum())
                    variance[k] += float(mean.square().sum())
    for k, found in explained(encoder, heads, takes).items():
        assert found == pytest.approx(100 * (1 - error[k] / variance[k]), rel=1e-4)


def test_heads_that_say_the_mean_explain_nothing():
    encoder, heads = model()
    for parameter in heads.parameters():
        parameter.data.zero_()
    found = explained(encoder, heads, [take("a", np.random.default_rng(1))])
    assert all(abs(value) < 1e-6 for value in found.values())
