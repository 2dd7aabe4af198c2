"""Streamed probes, and an encoder with one, say what they say offline, in pieces of any length."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pjepa.live.labels import LabelStream, ProbeStream
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.segments import SegmentRule
from pjepa.probes.attentive.config import AttentiveConfig
from pjepa.probes.base.trained import Task
from pjepa.probes.foreground.config import ForegroundConfig
from pjepa.probes.linear.probe import LinearProbe
from pjepa.probes.ltcausal.config import LTCausalConfig
from pjepa.probes.ltcontext import probe as ltcontext
from pjepa.probes.ltcontext.attention import HIDDEN, Strides, Visibility
from pjepa.ui.console import InputError
from tests.probes.kinds import new_probe

WIDTH, CLASSES, TOLERANCE = 16, 4, 1e-5
TASK = Task(WIDTH, CLASSES, background=0)
ATTENTIVE = {"window": 11, "chunk": 4, "width": 8, "heads": 2}
LTC = {"stages": 3, "layers": 3, "width": 8, "reduction": 2, "window": 4, "stride": 5}
lengths_of = st.lists(st.integers(1, 12), min_size=1, max_size=7)


def scaled(probe, gain=2.0):
    probe.mean.normal_(generator=torch.Generator().manual_seed(1))
    probe.std.uniform_(0.5, 2, generator=torch.Generator().manual_seed(1))
    for value in probe.module.parameters():
        value.data.mul_(gain)  # so that attention matters
    return probe


def attentive(kind="causal", **changes):
    config = AttentiveConfig(chunk_attention=kind, **{**ATTENTIVE, **changes})
    return scaled(new_probe("attentive", config, TASK, 0))


def ltcausal(**changes):
    config = LTCausalConfig(**{**LTC, **changes})
    return scaled(new_probe("ltcausal", config, TASK, 0), 1.2)  # more would amplify rounding


def linear():
    draw = torch.Generator().manual_seed(0)
    weight = torch.randn(CLASSES, WIDTH, generator=draw)
    bias = torch.tensor([0.0, -torch.inf, 1.0, 0.5])
    return LinearProbe(weight, bias, torch.ones(WIDTH), torch.full((WIDTH,), 2.0))


PROBES = {
    "linear": linear,
    "foreground": lambda: scaled(new_probe("foreground", ForegroundConfig(), TASK, 0)),
    "attentive": attentive,
    "attentive, two layers": lambda: attentive(depth=2),
    "attentive, whole chunks": lambda: attentive("chunk", depth=2),
    "attentive, window = chunk": lambda: attentive(window=4),
    "ltcausal": ltcausal,
    "ltcausal, two heads": lambda: ltcausal(heads=2, reduction=1, dilation=3),
    "ltcausal, blocks": lambda: ltcausal(block=3),
    "ltcausal, release": lambda: ltcausal(kind="release", instance_norm=False, window=5),
}
MADE = {name: make() for name, make in PROBES.items()}


def take(lengths, seed=0):
    x = np.random.default_rng(seed).normal(size=(sum(lengths), WIDTH)).astype(np.float32)
    return x, np.repeat(np.arange(len(lengths)), lengths)


def pieces(count, draw):
    """(start, stop) of random pieces, some of them empty."""
    start = 0
    while start < count:
        stop = min(count, start + draw.randint(0, 9))
        yield start, stop
        start = stop


@pytest.mark.parametrize("name", PROBES)
@settings(max_examples=12, deadline=None)
@given(lengths_of, st.integers(0, 99))
def test_equal_to_offline_in_pieces_of_any_length(name, lengths, seed):
    probe, draw = MADE[name], random.Random(seed)
    x, segment = take(lengths, seed)
    stream, found = ProbeStream(probe), []
    for start, stop in pieces(len(x), draw):
        ended = stop == len(x) or bool(segment[stop] != segment[stop - 1])
        found.append(stream.push(x[start:stop], segment[start:stop], ended and stop > start))
        if stop < len(x):  # a token is final as soon as the probe's sight allows
            assert stream.count == (probe.sight.ends(segment) <= stop).sum()
        more = draw.randint(0, min(6, len(x) - stop))
        seen = stop + more
        if seen:
            peeked = stream.peek(x[stop:seen], segment[stop:seen])
            expected = probe.predict(x[:seen], segment[:seen])
            so_far = np.concatenate([*found, peeked])
            np.testing.assert_allclose(so_far, expected, atol=TOLERANCE)
    found.append(stream.finish())
    np.testing.assert_allclose(np.concatenate(found), probe.predict(x, segment), atol=TOLERANCE)


@pytest.mark.parametrize("name", PROBES)
@settings(max_examples=6, deadline=None)
@given(lengths_of, st.integers(0, 99))
def test_a_restart_gives_the_same_bits(name, lengths, seed):
    probe, draw = MADE[name], random.Random(seed)
    x, segment = take(lengths, seed)
    parts = list(pieces(len(x), draw))
    cut = draw.randint(0, len(parts))
    stream, other = ProbeStream(probe), ProbeStream(PROBES[name]())
    for start, stop in parts[:cut]:
        stream.push(x[start:stop], segment[start:stop])
    other.restore({name: value.clone() for name, value in stream.state().items()})
    for start, stop in parts[cut:]:
        piece = x[start:stop], segment[start:stop]
        np.testing.assert_array_equal(stream.push(*piece), other.push(*piece))
    np.testing.assert_array_equal(stream.finish(), other.finish())


@settings(max_examples=25, deadline=None)
@given(lengths_of, st.integers(0, 20), st.integers(0, 99))
def test_a_horizon_limits_long_term_attention_and_nothing_else(lengths, horizon, seed):
    probe = MADE["ltcausal"]
    x, segment = take(lengths, seed)
    stream, found = ProbeStream(probe, horizon), []
    for number in range(len(lengths)):
        own = segment == number
        found.append(stream.push(x[own], segment[own], ended=True))
    usual = ltcontext.visibility

    def limited(pattern, valid, place, dtype):
        seen = usual(pattern, valid, place, dtype)
        if not isinstance(pattern, Strides):
            return seen
        step, count = pattern.step, len(x)
        rows = torch.arange(-(-count // step) * step).view(-1, step).T  # [G, rows]
        begin = np.searchsorted(segment, segment, side="left")
        begin = torch.from_numpy(np.pad(begin, (0, -count % step))).view(-1, step).T
        far = rows[:, None, :] < begin[:, :, None] - horizon
        return Visibility(pattern, seen.bias.masked_fill(far[None, :, None], HIDDEN))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ltcontext, "visibility", limited)
        expected = probe.predict(x, segment)
    np.testing.assert_allclose(np.concatenate(found), expected, atol=TOLERANCE)


def test_memory_is_bounded():
    for probe, horizon in ((attentive(), None), (ltcausal(), 40)):
        stream, sizes = ProbeStream(probe, horizon), []
        for number in range(200):
            x, _ = take([7], number)
            stream.push(x, np.full(7, number), ended=True)
            sizes.append(stream.cache_bytes)
        assert max(sizes[100:]) <= max(sizes[:100])


@pytest.mark.parametrize("name", ["attentive", "ltcausal"])
@pytest.mark.parametrize("attention", ["clip_causal", "block_causal", "token_causal"])
@settings(max_examples=10, deadline=None)
@given(lengths_of, st.integers(0, 99))
def test_an_outside_signal_ends_segments(name, attention, lengths, seed):
    torch.manual_seed(0)
    shape = {"d_in": 6, "width": WIDTH, "depth": 2, "heads": 2, "block": 4}
    encoder = ProcedureEncoder(EncoderConfig(attention=attention, **shape)).eval()
    probe, draw = MADE[name], random.Random(seed)
    x = np.random.default_rng(seed).normal(size=(sum(lengths), 6)).astype(np.float32)
    segment = np.repeat(np.arange(len(lengths)), lengths)
    stream, found, end = LabelStream(encoder, probe, SegmentRule("annotated")), [], 0
    for length in lengths:
        stop = end + length
        while end < stop:
            count = min(stop - end, draw.randint(1, 5))
            found.append(stream.push(x[end : end + count]))
            end += count
        found.append(stream.end_segment())
        seen = encoder.encode(x[:end], np.bincount(segment[:end]).tolist()).numpy()
        expected = probe.predict(seen, segment[:end])
        so_far = np.concatenate([*found, stream.peek()])
        np.testing.assert_allclose(so_far, expected, atol=TOLERANCE)
        if attention != "block_causal":
            assert stream.waiting == 0  # the signal decided everything
    found.append(stream.finish())
    np.testing.assert_allclose(np.concatenate(found), expected, atol=TOLERANCE)


def test_features_of_another_width_are_named():
    with pytest.raises(InputError, match=r"\[n, 16\]"):
        ProbeStream(linear()).push(np.zeros((2, 7), np.float32), np.zeros(2, np.int64))
