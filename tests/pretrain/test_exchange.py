"""Segments exchanged between takes: what may stand in for what, and when."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pjepa.core.runs import runs
from pjepa.pretrain.config import PjepaConfig
from pjepa.pretrain.data import TakeView, TrainingTake, pack, view
from pjepa.pretrain.exchange import NEAREST, Exchange
from pjepa.pretrain.setup import measure
from tests.pretrain.conftest import tokens_of

KINDS = 4


@pytest.fixture(scope="module")
def worlds():
    """Takes whose segments are of four kinds far from each other, and the kind of each."""
    rng = np.random.default_rng(0)
    centres, takes, kinds = 10 * rng.normal(size=(KINDS, 6)), [], {}
    for number in (3, 1, 8, 5):  # numbers are places in a stream, not in the list
        kinds[number] = rng.permutation(np.repeat(np.arange(KINDS), 3))
        lengths = rng.integers(2, 7, 12)
        segment = np.repeat(np.arange(12), lengths)
        features = centres[np.repeat(kinds[number], lengths)] + rng.normal(size=(lengths.sum(), 6))
        takes.append(TrainingTake(number, f"t{number}", features.astype(np.float16), segment))
    return takes, kinds


def exchange_of(takes, share, seed=0, norm="standardize"):
    config = PjepaConfig(width=16, heads=2, predictor_heads=2, input_norm=norm)
    config = config.model_copy(update={"exchange": share, "seed": seed})
    return Exchange(takes, measure(takes).std, config), config


def kind_of(piece, kinds):
    return kinds[piece.take.number][piece.take.segment[piece.start]]


def test_whole_segments_of_other_takes_stand_in_the_nearest_of_a_plain_search(worlds):
    takes, _ = worlds
    exchange, _ = exchange_of(takes, 1.0)
    units = np.concatenate([take.features.astype(np.float64) for take in takes]).std(axis=0)
    means = [piece.features().astype(np.float64).mean(axis=0) / units for piece in exchange.pieces]
    for number, nearest in enumerate(np.concatenate(list(exchange.nearest.values()))):
        own = exchange.pieces[number].take
        others = [n for n, piece in enumerate(exchange.pieces) if piece.take is not own]
        others.sort(key=lambda n: np.linalg.norm(means[n] - means[number]))
        assert nearest.tolist() == others[:NEAREST]
    for piece in (piece for take in takes for piece in exchange.pieces_of(take, epoch=2)):
        starts, lengths = runs(piece.take.segment)
        assert (piece.start, piece.stop) in zip(starts, starts + lengths, strict=True)


def test_epochs_differ_the_same_epoch_is_the_same_and_the_share_is_kept(worlds):
    takes, _ = worlds

    def shown(seed, epoch):
        pieces = exchange_of(takes, 0.5, seed)[0].pieces_of(takes[1], epoch)
        return [(piece.take.number, piece.start) for piece in pieces]

    assert shown(0, 4) == shown(0, 4)
    assert shown(0, 4) != shown(0, 5)
    assert shown(0, 4) != shown(1, 4)
    exchange, _ = exchange_of(takes, 0.3)
    epochs = [(take, exchange.pieces_of(take, epoch)) for epoch in range(100) for take in takes]
    lent = [piece.take is not take for take, pieces in epochs for piece in pieces]
    assert np.mean(lent) == pytest.approx(0.3, abs=0.03)


def test_lent_tokens_get_the_mean_of_their_new_take_where_takes_are_centred(worlds):
    takes, kinds = worlds
    rng = np.random.default_rng(1)
    styles = [100 * rng.normal(size=6) for _ in takes]  # larger than what tells kinds apart
    styled = [
        replace(take, features=(take.features + style).astype(np.float32))
        for take, style in zip(takes, styles, strict=True)
    ]
    exchange, config = exchange_of(styled, 1.0, norm="causal_center")
    for take in styled:
        shown = view(take, 0, config, exchange)
        assert [kind_of(piece, kinds) for piece in shown.pieces] == kinds[take.number].tolist()
        lengths = [len(piece) for piece in shown.pieces]
        batch = pack([shown], 0, config, tokens_of(styled))
        assert np.array_equal(batch.layout.segment, np.repeat(np.arange(12), lengths))
        expected = np.concatenate([
            piece.features() - piece.take.features.mean(axis=0) + take.features.mean(axis=0)
            for piece in shown.pieces
        ])  # fmt: skip
        np.testing.assert_allclose(batch.features, expected, atol=1e-3)
        window = TakeView(take, [piece.cut(1, 3) for piece in shown.pieces])
        rows = torch.isin(batch.layout.offset, torch.tensor([1, 2]))
        cut = pack([window], 0, config, tokens_of(styled)).features
        assert torch.equal(cut, batch.features[rows])


def test_few_segments_of_other_takes_are_enough_and_none_changes_nothing(worlds):
    takes, _ = worlds
    one = replace(takes[1], segment=np.zeros_like(takes[1].segment))
    pieces = exchange_of([takes[0], one], 1.0)[0].pieces_of(takes[0], 0)
    assert [piece.take for piece in pieces] == [one] * 12
    alone = exchange_of(takes[:1], 1.0)[0].pieces_of(takes[0], 0)
    assert all(piece.take is takes[0] for piece in alone)
