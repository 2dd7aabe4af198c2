"""The neighbour term is the sum of its docstring, and Eq. 2 does not know whether it is there."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import save_file
from torch.nn import functional as F

from pjepa.model.attention import layout_of_segments
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.masking import mask_of
from pjepa.model.neighbours import HEADS, NeighbourHeads, neighbour_error, pairs_of
from pjepa.model.objective import Batch, Counts, Jepa
from pjepa.model.predictor import Predictor
from pjepa.pretrain.config import PjepaConfig
from pjepa.pretrain.data import TrainingTake
from pjepa.pretrain.setup import fit_spread
from pjepa.ui.console import InputError

CONFIG = EncoderConfig(
    d_in=6, width=8, depth=1, heads=2, attention="clip_causal", input_norm="causal_center",
    style_rank=2,
)  # fmt: skip
TAKES = [[3, 1, 4, 2], [5], [2, 2], [1, 6, 1, 1, 3]]  # segment lengths; one take has no neighbour


def model_with(places):
    torch.manual_seed(0)
    student, predictor = ProcedureEncoder(CONFIG), Predictor(CONFIG, 1, 2)
    return Jepa(student, predictor, NeighbourHeads(8, 6, places) if places else None)


def random_batch(places=(), seed=0):
    layout = layout_of_segments(TAKES)
    rng = np.random.default_rng(seed)
    count = sum(layout.take_lengths)
    target = torch.from_numpy(rng.random(count) < 0.6)
    features = torch.from_numpy(rng.normal(size=(count, 6)).astype(np.float32))
    mask = mask_of(target, layout.take_lengths)
    pairs = pairs_of(places, mask.context, layout) if places else None
    return Batch(features, layout, mask, pairs)


def slow_term(model, batch):
    """Take by take, token by token, as the equation reads: (summed error, pairs)."""
    z = iter(model.context(batch))
    x = model.teacher.normalised(batch.features, batch.layout)
    total, pairs, first = 0.0, 0, 0
    for lengths in TAKES:
        tokens = x[first : first + sum(lengths)]
        means = [part.mean(dim=0) for part in torch.split(tokens, lengths)]
        segment = [c for c, length in enumerate(lengths) for _ in range(length)]
        for place, c in enumerate(segment):
            if first + place in batch.mask.target:
                continue
            feature = next(z)
            for k in model.neighbours.places:
                if 0 <= c + k < len(lengths):
                    predicted = model.neighbours(feature, k)
                    total += float(F.smooth_l1_loss(predicted, means[c + k]).detach())
                    pairs += 1
        first += sum(lengths)
    return total, pairs


@pytest.mark.parametrize("places", [(-2, -1, 0, 1, 2), (1,), (-4, 3), (9,)])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_term_is_its_equation(places, seed):
    model, batch = model_with(places), random_batch(places, seed)
    total, pairs = slow_term(model, batch)
    assert model.counts(batch) == Counts(len(batch.mask.target), pairs)
    context, inputs = model.context(batch), model.inputs(batch)
    found = neighbour_error(model.neighbours, context, batch.pairs, inputs)
    assert float(found.detach()) == pytest.approx(total, rel=1e-5)


def test_eq2_is_the_same_with_and_without_the_term():
    alone, both, batch = model_with(()), model_with((-1, 1)), random_batch((-1, 1))
    assert {name.split(".")[0] for name in alone.state_dict()} == {
        "student",
        "teacher",
        "predictor",
    }
    for name, weight in alone.state_dict().items():
        assert torch.equal(weight, both.state_dict()[name])
    targets = alone.targets(batch, alone.inputs(batch))
    plain = (alone.predictions(batch, alone.context(batch)) - targets).abs().mean(1)
    terms = alone(batch, alone.counts(batch))
    assert terms.neighbour is None
    assert torch.equal(terms.eq2, plain.sum() / len(batch.mask.target))
    assert torch.equal(terms.eq2, both(batch, both.counts(batch)).eq2)


def test_targets_get_no_gradient_and_every_head_learns():
    model, batch = model_with((-1, 1)), random_batch((-1, 1))
    model(batch, model.counts(batch)).neighbour.backward()
    assert all(p.grad is None for p in model.teacher.parameters())
    assert all(p.grad is None for p in model.predictor.parameters())
    assert all(p.grad.any() for p in model.neighbours.parameters())
    assert model.student.proj[1].weight.grad.any()


def test_bf16_is_near_full_precision():
    model, batch = model_with((-1, 1)), random_batch((-1, 1))
    counts = model.counts(batch)
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(batch, counts).neighbour
    assert rough.dtype == torch.float32
    assert float(rough.detach()) == pytest.approx(
        float(model(batch, counts).neighbour.detach()), rel=0.02
    )


def test_spread_is_the_covariance_of_segment_means():
    model, rng = model_with((1,)), np.random.default_rng(0)
    takes, means = [], []
    for number, lengths in enumerate(TAKES):
        x = rng.normal(2, 1, (sum(lengths), 6)).astype(np.float32)
        segment = np.repeat(np.arange(len(lengths)), lengths)
        takes.append(TrainingTake(number, str(number), x, segment))
        normal = model.student.normalised(torch.from_numpy(x), layout_of_segments([lengths]))
        means += [part.mean(dim=0) for part in normal.split(lengths)]
    fit_spread(model.neighbours, model.student, takes)
    expected = torch.cov(torch.stack(means).T, correction=0)
    torch.testing.assert_close(model.neighbours.spread, expected, atol=1e-5, rtol=1e-4)


def test_heads_come_back_from_disk(tmp_path):
    heads = NeighbourHeads(8, 6, (2, -1))
    heads.spread.mul_(3)
    heads.save(tmp_path)
    assert (tmp_path / HEADS).exists()
    again = NeighbourHeads.load(tmp_path)
    assert again.places == (-1, 2)
    assert torch.equal(again.spread, heads.spread)
    z = torch.randn(3, 8)
    for k in again.places:
        assert torch.equal(heads(z, k), again(z, k))


def test_heads_of_an_older_version_are_one_line(tmp_path):
    old = NeighbourHeads(8, 6, (1,)).at.state_dict()
    save_file(old, tmp_path / HEADS)
    with pytest.raises(InputError, match="has no tensor 'spread'; run the stage that writes it"):
        NeighbourHeads.load(tmp_path)


def test_missing_heads_are_one_line(tmp_path):
    with pytest.raises(InputError, match=r"pretrain with pjepa\.neighbours"):
        NeighbourHeads.load(tmp_path)


def test_repeated_neighbours_are_refused():
    with pytest.raises(ValidationError, match="must be different numbers"):
        PjepaConfig(neighbours=(1, 1))


def test_annotated_segments_are_not_smuggled_in():
    free = {"attention": "block_causal", "positions": "1d"}
    with pytest.raises(ValidationError, match="set segments to fixed or found"):
        PjepaConfig(neighbours=(1,), **free)
    assert PjepaConfig(neighbours=(1,), segments="fixed", **free).neighbours == (1,)
