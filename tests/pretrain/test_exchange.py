"""Segments exchanged between takes: what may stand in for what, and when."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pjepa.core.runs import runs
from pjepa.pretrain.config import PjepaConfig
from pjepa.pretrain.data import TokenPacking, TrainingTake, exchanged, shifted, view
from pjepa.pretrain.exchange import NEAREST, Exchange

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


def kind_of(piece, kinds):
    return kinds[piece.take.number][piece.take.segment[piece.start]]


def test_the_order_of_the_kinds_stays_and_the_segments_do_not(worlds):
    takes, kinds = worlds
    exchange = Exchange(takes, 1.0, 0, False)
    for take in takes:
        shown = exchange.pieces_of(take, epoch=2)
        assert [kind_of(piece, kinds) for piece in shown] == kinds[take.number].tolist()
        assert all(piece.take is not take for piece in shown)


def test_a_piece_is_a_whole_segment(worlds):
    takes, _ = worlds
    for piece in Exchange(takes, 1.0, 0, False).pieces_of(takes[0], 0):
        starts, lengths = runs(piece.take.segment)
        assert (piece.start, piece.stop) in zip(starts, starts + lengths, strict=True)


def test_the_nearest_are_those_of_a_plain_search(worlds):
    takes, _ = worlds
    exchange = Exchange(takes, 1.0, 0, False)
    stacked = np.concatenate([take.features.astype(np.float64) for take in takes])
    units = stacked.std(axis=0)
    means = [piece.features().astype(np.float64).mean(axis=0) / units for piece in exchange.pieces]
    for place, found in enumerate(exchange.nearest):
        own = exchange.pieces[place].take
        others = [n for n, piece in enumerate(exchange.pieces) if piece.take is not own]
        others.sort(key=lambda n: np.linalg.norm(means[n] - means[place]))
        assert found.tolist() == others[:NEAREST]


def test_epochs_differ_and_the_same_epoch_is_the_same(worlds):
    takes, _ = worlds

    def shown(seed, epoch):
        pieces = Exchange(takes, 0.5, seed, False).pieces_of(takes[1], epoch)
        return [(piece.take.number, piece.start) for piece in pieces]

    assert shown(0, 4) == shown(0, 4)
    assert shown(0, 4) != shown(0, 5)
    assert shown(0, 4) != shown(1, 4)


def test_the_share_is_kept(worlds):
    takes, _ = worlds
    exchange = Exchange(takes, 0.3, 0, False)
    lent = [
        piece.take is not take
        for epoch in range(100)
        for take in takes
        for piece in exchange.pieces_of(take, epoch)
    ]
    assert np.mean(lent) == pytest.approx(0.3, abs=0.03)


def test_a_view_is_laid_out_as_a_take_of_its_pieces(worlds):
    takes, _ = worlds
    exchange = Exchange(takes, 0.5, 0, False)
    shown = view(takes[2], 1, PjepaConfig(width=16, heads=2, predictor_heads=2), exchange)
    lengths = [len(piece) for piece in exchange.pieces_of(takes[2], 1)]
    assert np.array_equal(shown.segment, np.repeat(np.arange(12), lengths))
    assert np.array_equal(shown.offset, np.concatenate([np.arange(n) for n in lengths]))


def test_lent_tokens_get_the_mean_of_their_new_take_where_takes_are_centred(worlds):
    takes, kinds = worlds
    rng = np.random.default_rng(1)
    styles = [100 * rng.normal(size=6) for _ in takes]  # larger than what tells kinds apart
    styled = [
        replace(take, features=(take.features + style).astype(np.float32))
        for take, style in zip(takes, styles, strict=True)
    ]
    exchange = Exchange(styled, 1.0, 0, True)
    for take in styled:
        shown = exchanged(take, exchange.pieces_of(take, 0))
        assert [kind_of(piece, kinds) for piece in shown.pieces] == kinds[take.number].tolist()
        tokens = shifted(TokenPacking().packed([shown], 6), [shown]).numpy()
        expected = np.concatenate([
            piece.features() - piece.take.features.mean(axis=0) + take.features.mean(axis=0)
            for piece in shown.pieces
        ])  # fmt: skip
        np.testing.assert_allclose(tokens, expected, atol=1e-3)


def test_a_window_of_a_view_keeps_its_shifts(worlds):
    takes, _ = worlds
    exchange = Exchange(takes, 0.5, 0, True)
    shown = exchanged(takes[0], exchange.pieces_of(takes[0], 3))
    keep = np.flatnonzero(shown.offset < 2)[5:17]
    part = shown.at(keep)
    tokens = [shifted(TokenPacking().packed([v], 6), [v]) for v in (shown, part)]
    assert torch.equal(tokens[0][keep], tokens[1])


def test_a_take_alone_keeps_its_segments(worlds):
    (take, *_), _ = worlds
    assert all(piece.take is take for piece in Exchange([take], 1.0, 0, False).pieces_of(take, 0))


def test_few_segments_of_other_takes_are_enough(worlds):
    takes, _ = worlds
    one = replace(takes[1], segment=np.zeros_like(takes[1].segment))
    shown = Exchange([takes[0], one], 1.0, 0, False).pieces_of(takes[0], 0)
    assert [piece.take for piece in shown] == [one] * 12


def test_boundaries_that_the_encoder_does_not_know_are_refused():
    settings = {"attention": "block_causal", "positions": "1d", "exchange": 0.5}
    with pytest.raises(ValueError, match=r"exchange 0\.5 would read annotated segments"):
        PjepaConfig(**settings)
    PjepaConfig(**settings, segments="fixed")
