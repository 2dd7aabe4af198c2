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


def model_and_batch(places, seed=0):
    torch.manual_seed(0)
    student, predictor = ProcedureEncoder(CONFIG), Predictor(CONFIG, 1, 2)
    model = Jepa(student, predictor, NeighbourHeads(8, 6, places) if places else None)
    layout, rng = layout_of_segments(TAKES), np.random.default_rng(seed)
    count = len(layout.index)
    mask = mask_of(torch.from_numpy(rng.random(count) < 0.6), layout.take_lengths)
    features = torch.from_numpy(rng.normal(size=(count, 6)).astype(np.float32))
    pairs = pairs_of(places, mask.context, layout) if places else None
    return model, Batch(features, layout, mask, pairs)


def slow_term(model, batch):
    """Take by take, token by token, as the equation reads: (summed error, pairs)."""
    z, x = iter(model.context(batch)), model.inputs(batch)
    total, pairs, first = 0.0, 0, 0
    for lengths in TAKES:
        tokens = x[first : first + sum(lengths)]
        means = [part.mean(dim=0) for part in torch.split(tokens, lengths)]
        for token, c in enumerate(np.repeat(np.arange(len(lengths)), lengths).tolist()):
            if first + token in batch.mask.target:
                continue
            feature = next(z)
            for k in model.neighbours.places:
                if 0 <= c + k < len(lengths):
                    error = F.smooth_l1_loss(model.neighbours(feature, k), means[c + k])
                    total, pairs = total + float(error.detach()), pairs + 1
        first += sum(lengths)
    return total, pairs


@pytest.mark.parametrize("places", [(-2, -1, 0, 1, 2), (1,), (-4, 3), (9,)])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_term_is_its_equation(places, seed):
    model, batch = model_and_batch(places, seed)
    total, pairs = slow_term(model, batch)
    assert model.counts(batch) == Counts(len(batch.mask.target), pairs)
    error = neighbour_error(
        model.neighbours, model.context(batch), batch.pairs, model.inputs(batch)
    )
    assert float(error.detach()) == pytest.approx(total, rel=1e-5)


def test_eq2_is_the_same_with_and_without_the_term():
    (alone, _), (both, batch) = model_and_batch(()), model_and_batch((-1, 1))
    parts = {name.split(".")[0] for name in alone.state_dict()}
    assert parts == {"student", "teacher", "predictor"}
    for name, weight in alone.state_dict().items():
        assert torch.equal(weight, both.state_dict()[name])
    terms = alone(batch, alone.counts(batch))
    assert terms.neighbour is None
    assert torch.equal(terms.eq2, both(batch, both.counts(batch)).eq2)


def test_targets_get_no_gradient_and_every_head_learns():
    model, batch = model_and_batch((-1, 1))
    model(batch, model.counts(batch)).neighbour.backward()
    for still in (model.teacher, model.predictor):
        assert all(p.grad is None for p in still.parameters())
    assert all(p.grad.any() for p in model.neighbours.parameters())
    assert model.student.proj[1].weight.grad.any()


def test_spread_is_the_covariance_of_segment_means():
    model, _ = model_and_batch((1,))
    rng, takes, means = np.random.default_rng(0), [], []
    for number, lengths in enumerate(TAKES):
        x = rng.normal(2, 1, (sum(lengths), 6)).astype(np.float32)
        segment = np.repeat(np.arange(len(lengths)), lengths)
        takes.append(TrainingTake(number, str(number), x, segment))
        normal = model.student.normalised(torch.from_numpy(x), layout_of_segments([lengths]))
        means += [part.mean(dim=0) for part in normal.split(lengths)]
    fit_spread(model.neighbours, model.student, takes)
    expected = torch.cov(torch.stack(means).T, correction=0)
    torch.testing.assert_close(model.neighbours.spread, expected, atol=1e-5, rtol=1e-4)


def test_heads_come_back_from_disk_or_say_why_not(tmp_path):
    heads = NeighbourHeads(8, 6, (2, -1))
    heads.spread.mul_(3)
    heads.save(tmp_path)
    again = NeighbourHeads.load(tmp_path)
    assert again.places == (-1, 2)
    assert torch.equal(again.spread, heads.spread)
    z = torch.randn(3, 8)
    assert all(torch.equal(heads(z, k), again(z, k)) for k in again.places)
    save_file(heads.at.state_dict(), tmp_path / HEADS)  # as an older version wrote them
    with pytest.raises(InputError, match="has no tensor 'spread'; run the stage that writes it"):
        NeighbourHeads.load(tmp_path)


FREE = {"attention": "block_causal", "positions": "1d"}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"neighbours": (1, 1)}, "must be different numbers"),
        ({"neighbours": (1,), **FREE}, "set segments to fixed or found"),
        ({"exchange": 0.5, **FREE}, r"exchange 0\.5 would read annotated segments"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, reason):
    with pytest.raises(ValidationError, match=reason):
        PjepaConfig(**settings)
    if settings.get("neighbours") != (1, 1):  # no annotated boundary is smuggled in
        PjepaConfig(**settings, segments="fixed")
