"""Forecast and surprise are their equations, and the same numbers while a take goes on."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pjepa.model.attention import layout_of_segments
from pjepa.model.forecast import Forecaster, can_forecast, distance, whitening
from pjepa.model.neighbours import NeighbourHeads
from pjepa.ui.console import InputError
from tests.model.test_stream import cut, encoder, tokens_of

segmentations = st.lists(st.integers(1, 9), min_size=1, max_size=7)


def forecaster(**changes):
    model = encoder(**changes)
    torch.manual_seed(1)
    heads = NeighbourHeads(16, 6, (-1, 1))
    heads.spread.copy_(torch.cov(torch.randn(6, 20)))
    return Forecaster(model, heads)


@pytest.mark.parametrize("norm", ["none", "causal_center"])
def test_the_numbers_are_their_equations(norm):
    lengths, made = [4, 1, 7, 3], forecaster(input_norm=norm)
    x = tokens_of(sum(lengths), 0)
    layout = layout_of_segments([lengths])
    features = torch.split(made.encoder.encode(x, lengths), lengths)
    normal = torch.split(made.encoder.normalised(x, layout), lengths)
    found = made.forecast(x, lengths)
    with torch.inference_mode():
        h = [made.heads(z, 1).mean(dim=0) for z in features]
    torch.testing.assert_close(found.forecast, torch.stack(h), atol=1e-5, rtol=0)
    assert found.surprise[0] == 0
    spread = made.heads.spread.double()
    inverse = torch.linalg.inv(spread + 0.3 * spread.trace() / 6 * torch.eye(6))
    for s in range(1, len(lengths)):
        error = (normal[s].mean(dim=0) - h[s - 1]).double()
        expected = float(error @ inverse @ error) / 6
        assert float(found.surprise[s]) == pytest.approx(expected, rel=1e-4)
    columns = found.columns(layout.segment.numpy())
    assert columns.shape == (15, 7)
    assert (columns[5:12] == columns[5]).all()


def test_an_error_counts_less_where_segments_differ_much():
    factor = whitening(torch.diag(torch.tensor([9.0, 1.0])))
    wide, narrow = distance(torch.eye(2), factor)
    assert wide < narrow / 3
    alike = whitening(torch.zeros(2, 2))  # all segments are the same: still a number
    assert torch.isfinite(distance(torch.eye(2), alike)).all()


@settings(max_examples=40, deadline=None)
@given(
    segmentations,
    st.sampled_from(("clip_causal", "block_causal", "token_causal")),
    st.sampled_from(("standardize", "causal_center")),
    st.sampled_from(("annotated", "fixed", "found")),
    st.integers(0, 999).map(random.Random),
)
def test_a_stream_says_the_same(lengths, attention, norm, kind, draw):
    """Of annotated segments one by one, and of its own in pieces of any length."""
    made = forecaster(
        attention=attention, input_norm=norm, segments=kind, found_tokens=5, found_max=9
    )
    x = tokens_of(sum(lengths), 3)
    stream = made.stream()
    pieces = torch.split(x, lengths) if kind == "annotated" else cut(x, draw)
    parts = [stream.push(piece) for piece in pieces]
    if kind == "annotated" and attention == "clip_causal":  # known the moment a segment ends
        assert [len(part.surprise) for part in parts] == [1] * len(lengths)
    parts.append(stream.finish())
    if kind != "annotated":
        segment = torch.from_numpy(made.encoder.segments(x.numpy()))
        lengths = torch.unique_consecutive(segment, return_counts=True)[1].tolist()
    whole = made.forecast(x, lengths)
    for name in ("forecast", "surprise"):
        found = torch.cat([getattr(part, name) for part in parts])
        torch.testing.assert_close(found, getattr(whole, name), atol=1e-5, rtol=0)


def test_runs_and_heads_without_the_next_segment_are_refused(tmp_path):
    with pytest.raises(InputError, match="a forecast needs 1"):
        Forecaster(encoder(), NeighbourHeads(16, 6, (-1, 2)))
    encoder().save_pretrained(tmp_path)
    assert not can_forecast(tmp_path)
    with pytest.raises(InputError, match=r"pretrain with pjepa\.neighbours"):
        Forecaster.from_pretrained(tmp_path)
