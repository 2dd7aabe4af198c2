import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pjepa.model.attention import AttentionPlan
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.segments import SegmentRule
from pjepa.model.stream import EncoderStream
from pjepa.ui.console import InputError
from tests.model.slow_attention import masked_attention

CAUSAL = ("clip_causal", "block_causal", "token_causal")
NORMS = ("none", "standardize", "causal_center")
POSITIONS = ("2d", "1d", "none")
TOLERANCE = 1e-5


def encoder(attention="clip_causal", **changes):
    torch.manual_seed(0)
    shape = {"d_in": 6, "width": 16, "depth": 3, "heads": 2, "block": 4, **changes}
    model = ProcedureEncoder(EncoderConfig(attention=attention, style_rank=3, **shape)).eval()
    for buffer in (model.mean, model.style_read, model.style_write):
        buffer.normal_()
    model.std.uniform_(0.5, 2.0)
    model.style_strength.uniform_(0.1, 10.0)
    model.found_threshold.fill_(1.2)
    return model


def cut(tokens, draw):
    """Tokens in pieces of random lengths, some of them empty."""
    pieces = []
    while len(tokens):
        length = draw.randint(0, 9)
        pieces.append(tokens[:length])
        tokens = tokens[length:]
    return pieces


def tokens_of(length, seed):
    return torch.randn(length, 6, generator=torch.Generator().manual_seed(seed))


cuts = st.integers(0, 999).map(random.Random)
segmentations = st.lists(st.integers(1, 9), min_size=1, max_size=7)
modes = st.tuples(
    st.sampled_from(CAUSAL), st.sampled_from(NORMS), st.sampled_from(POSITIONS),
    st.sampled_from(("paired", "tiled")),
)  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(segmentations, modes, st.integers(0, 9), st.booleans())
def test_whole_segments_give_the_prefix_offline(lengths, mode, seed, peeks):
    attention, norm, positions, rope = mode
    model = encoder(attention, input_norm=norm, positions=positions, rope=rope)
    x = tokens_of(sum(lengths), seed)
    stream, found, end = model.stream(), [], 0
    for number, length in enumerate(lengths):
        found.append(stream.push(x[end : end + length]))
        end += length
        prefix = model.encode(x[:end], lengths[: number + 1])
        so_far = torch.cat(found)
        if peeks:
            so_far = torch.cat([so_far, stream.peek()])
            assert len(so_far) == end
        torch.testing.assert_close(so_far, prefix[: len(so_far)], atol=TOLERANCE, rtol=0)
    whole = torch.cat([*found, stream.finish()])
    torch.testing.assert_close(whole, model.encode(x, lengths), atol=TOLERANCE, rtol=0)


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(st.integers(1, 60), modes, st.sampled_from(("fixed", "found")), st.integers(0, 9), cuts)
def test_segments_that_end_themselves_in_pieces_of_any_length(length, mode, kind, seed, draw):
    attention, norm, positions, rope = mode
    shape = {"segments": kind, "found_tokens": 4, "found_max": 9}
    model = encoder(attention, input_norm=norm, positions=positions, rope=rope, **shape)
    x = tokens_of(length, seed)
    stream, found, pushed = model.stream(), [], 0
    for piece in cut(x, draw):
        found.append(stream.push(piece))
        pushed += len(piece)
        if pushed and draw.random() < 0.5:
            so_far = torch.cat([*found, stream.peek()])
            prefix = model.encode(x[:pushed])
            torch.testing.assert_close(so_far, prefix, atol=TOLERANCE, rtol=0)
    whole = torch.cat([*found, stream.finish()])
    torch.testing.assert_close(whole, model.encode(x), atol=TOLERANCE, rtol=0)


def limited(monkeypatch, horizon):
    """The offline encoder whose attention reaches `horizon` tokens before the query's block."""

    def attend(self, q, k, v):
        key = torch.arange(len(self.last))
        begins = torch.searchsorted(self.last, self.last)  # where the query's block begins
        allowed = (key < self.last[:, None]) & (key >= begins[:, None] - horizon)
        return masked_attention(q, k, v, allowed)

    monkeypatch.setattr(AttentionPlan, "attend", attend)


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(segmentations, modes, st.none() | st.integers(0, 12), st.integers(0, 9), cuts)
def test_open_segments_end_on_a_signal_and_a_horizon_is_limited_attention(
    lengths, mode, horizon, seed, draw
):
    attention, norm, positions, rope = mode
    model = encoder(attention, input_norm=norm, positions=positions, rope=rope)
    x = tokens_of(sum(lengths), seed)
    stream, found = model.stream(horizon=horizon), []
    for segment in x.split(lengths):
        for piece in cut(segment, draw):
            found.append(stream.push(piece, ends=False))
        if attention == "clip_causal":
            assert stream.waiting == len(segment)
        found.append(stream.end_segment())
        assert horizon is None or all(len(past) <= horizon for past in stream.past)
    found.append(stream.finish())
    with pytest.MonkeyPatch.context() as monkeypatch:
        if horizon is not None:
            limited(monkeypatch, horizon)
        expected = model.encode(x, lengths)
    torch.testing.assert_close(torch.cat(found), expected, atol=TOLERANCE, rtol=0)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 60),
    st.sampled_from(CAUSAL),
    st.sampled_from(("annotated", "fixed", "found")),
    st.sampled_from((None, 0, 5)),
    cuts,
)
def test_a_restart_gives_the_same_bits(tmp_path_factory, length, attention, kind, horizon, draw):
    shape = {"segments": kind, "found_tokens": 4, "found_max": 9, "input_norm": "causal_center"}
    model = encoder(attention, **shape)
    pieces = cut(tokens_of(length, 3), draw)
    stop = draw.randint(0, len(pieces))
    stream = model.stream(horizon=horizon)
    for piece in pieces[:stop]:
        stream.push(piece, ends=False)
        stream.peek()  # makes a buffer, and takes back what it held
    folder = tmp_path_factory.mktemp("state")
    stream.save(folder)
    other = EncoderStream.load(encoder(attention, **shape), folder)
    for piece in pieces[stop:]:
        assert torch.equal(stream.push(piece, ends=False), other.push(piece, ends=False))
        assert torch.equal(stream.peek(), other.peek())
    assert torch.equal(stream.finish(), other.finish())


def test_another_encoder_is_refused_the_state(tmp_path):
    model = encoder()
    stream = model.stream()
    stream.push(tokens_of(5, 0))
    stream.save(tmp_path)
    with torch.no_grad():
        model.norm.weight[0] += 1
    with pytest.raises(InputError, match="another encoder"):
        EncoderStream.load(model, tmp_path)
    (tmp_path / "state.safetensors").write_bytes(b"broken")
    with pytest.raises(InputError, match="no good state is left"):
        EncoderStream.load(model, tmp_path)


@pytest.mark.slow
def test_at_real_sizes():
    """Long enough that buffers grow, pieces are chunked and the fast offline kernels run."""
    for attention in CAUSAL:
        model = encoder(attention, width=64, heads=4, block=32, input_norm="causal_center")
        x = tokens_of(2500, 1)
        lengths = [45] * 55 + [25]
        stream = model.stream()
        found = [stream.push(segment) for segment in x.split(lengths)]
        expected = model.encode(x, lengths)
        whole = torch.cat([*found, stream.finish()])
        torch.testing.assert_close(whole, expected, atol=TOLERANCE, rtol=0)
        at_once = model.stream(segments=SegmentRule("fixed", 45))
        whole = torch.cat([at_once.push(x), at_once.finish()])
        torch.testing.assert_close(whole, expected, atol=TOLERANCE, rtol=0)


def test_memory_is_as_stated():
    model = encoder("block_causal", width=64, heads=4, block=32, segments="fixed")
    per_token = 2 * model.config.depth * 64 * 4
    stream = model.stream()
    for piece in tokens_of(3000, 0).split(32):
        stream.push(piece)
        waiting = stream.waiting * 6 * 4
        assert per_token * stream.tokens - waiting * per_token <= stream.cache_bytes
        assert stream.cache_bytes <= 2 * per_token * max(32, stream.tokens) + waiting
    bounded, sizes = model.stream(horizon=100), set()
    for piece in tokens_of(6000, 0).split(32):
        bounded.push(piece)
        sizes.add(bounded.cache_bytes)
        assert bounded.cache_bytes <= 2 * per_token * (100 + 32) + 32 * 6 * 4
    assert len(sizes) < 8  # it stops growing


def test_what_cannot_be_streamed_and_bad_input_is_named():
    with pytest.raises(InputError, match="bidirectional attention revises"):
        encoder("bidirectional").stream()
    with pytest.raises(InputError, match="mean of the whole take"):
        encoder(input_norm="take_center").stream()
    with pytest.raises(InputError, match="horizon -1"):
        encoder().stream(horizon=-1)
    stream = encoder().stream()
    with pytest.raises(InputError, match=r"\[n, 6\]"):
        stream.push(torch.zeros(3, 5))
    with pytest.raises(InputError, match="NaN"):
        stream.push(torch.full((1, 6), torch.nan))
    stream.push(np.zeros((2, 6), np.float16))
    stream.finish()
    with pytest.raises(InputError, match="finished"):
        stream.push(torch.zeros(3, 6))


@pytest.mark.parametrize("attention", CAUSAL)
def test_streams_of_one_encoder_share_nothing(attention):
    """Taking turns on threads; nothing happens where nothing is pushed."""
    model, lengths = encoder(attention, input_norm="causal_center"), [1, 4, 1, 8, 3, 4, 12, 1]
    takes = [tokens_of(sum(lengths), seed) for seed in range(4)]
    streams = [model.stream() for _ in takes]

    def pushed(stream, segment):
        empty = [stream.push(segment[:0], ends=False), stream.end_segment()]
        return torch.cat([*empty, stream.push(segment), stream.push(segment[:0])])

    with ThreadPoolExecutor(len(takes)) as threads:
        rounds = zip(*(x.split(lengths) for x in takes), strict=True)
        found = [list(threads.map(pushed, streams, segments)) for segments in rounds]
    found.append([stream.finish() for stream in streams])
    for parts, x in zip(zip(*found, strict=True), takes, strict=True):
        expected = model.encode(x, lengths)
        torch.testing.assert_close(torch.cat(parts), expected, atol=TOLERANCE, rtol=0)


def test_autocast_may_begin_and_end_in_the_middle():
    model, x = encoder(), tokens_of(12, 0)
    stream = model.stream()
    with torch.autocast("cpu", torch.bfloat16):
        found = [stream.push(x[:4])]
    found += [stream.push(x[4:9])]
    with torch.autocast("cpu", torch.bfloat16):
        found += [stream.push(x[9:])]
    torch.testing.assert_close(torch.cat(found), model.encode(x, [4, 5, 3]), atol=0.1, rtol=0)


def test_the_callers_buffer_may_be_reused():
    model = encoder()
    x = tokens_of(6, 0)
    stream, buffer = model.stream(), torch.empty(3, 6)
    for half in x.split(3):
        buffer.copy_(half)
        stream.push(buffer, ends=False)
    torch.testing.assert_close(stream.peek(), model.encode(x, [6]), atol=TOLERANCE, rtol=0)
