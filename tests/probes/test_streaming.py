"""Streamed predictions are those of the prefix, however little of it is run again."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pjepa.probes.attentive.config import AttentiveConfig
from pjepa.probes.base.scoring import Probe, Sight, seconds_ahead
from pjepa.probes.base.streamed import repeated_steps, segment_steps, streamed, time_steps
from pjepa.probes.base.trained import Task, TrainedProbe
from pjepa.probes.foreground.config import ForegroundConfig
from pjepa.probes.linear.probe import LinearProbe
from tests.probes.kinds import KINDS, new_probe

WIDTH = 4
TASK = Task(WIDTH, 3, background=0)


def attentive(kind: str) -> TrainedProbe:
    config = AttentiveConfig(window=9, chunk=4, width=8, heads=2, chunk_attention=kind)  # type: ignore[arg-type]
    return new_probe("attentive", config, TASK, seed=0)


def ltcontext(kind: str, **changes: int) -> TrainedProbe:
    config = KINDS[kind].config(stages=2, layers=2, width=8, window=4, stride=3, **changes)
    return new_probe(kind, config, TASK, seed=0)


PROBES: dict[str, Probe] = {
    "linear": LinearProbe(torch.randn(3, WIDTH), torch.zeros(3), torch.zeros(4), torch.ones(4)),
    "foreground": new_probe("foreground", ForegroundConfig(), TASK, seed=0),
    "attentive": attentive("causal"),
    "attentive chunk": attentive("chunk"),
    "ltcontext": ltcontext("ltcontext"),
    "ltcausal": ltcontext("ltcausal"),
    "ltcausal blocks": ltcontext("ltcausal", block=5),
}


def take_of(lengths: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    segments = np.repeat(np.arange(len(lengths)), lengths)
    random = np.random.default_rng(len(segments))
    return random.normal(size=(len(segments), WIDTH)).astype(np.float32), segments


def brute_force(probe: Probe, x: np.ndarray, segments: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The definition: run every prefix, keep what is new."""
    parts, start = [], 0
    for end in ends.tolist():
        parts.append(probe.predict(x[:end], segments[:end])[start:])
        start = end
    return np.concatenate(parts)


@pytest.mark.parametrize("name", PROBES)
@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 7), min_size=1, max_size=6), st.floats(0.3, 3))
def test_equals_running_every_prefix(name: str, lengths: list[int], step_s: float) -> None:
    x, segments = take_of(lengths)
    for ends in (segment_steps(segments), time_steps(np.arange(len(x)) / 4, step_s)):
        found = streamed(PROBES[name], x, segments, ends)
        expected = brute_force(PROBES[name], x, segments, ends)
        np.testing.assert_allclose(found, expected, atol=2e-6)


@pytest.mark.parametrize(
    ("name", "by_segments", "by_time"),
    [
        ("linear", 0, 0),
        ("foreground", 0, 0),
        ("attentive", 0, 0),
        ("ltcausal", 0, 2),
        ("ltcausal blocks", 2, 2),
        ("ltcontext", 3, 2),
        ("attentive chunk", 3, 0),
    ],
)
def test_causal_models_need_one_pass(name: str, by_segments: int, by_time: int) -> None:
    x, segments = take_of([3, 6, 1, 7])  # ends at 3, 9, 10, 17
    ticks = []
    ends = segment_steps(segments)
    streamed(PROBES[name], x, segments, ends, lambda: ticks.append(1))
    assert len(ticks) == by_segments
    ends = time_steps(np.arange(17) / 4, 2.0)  # ends at 8, 16, 17
    assert len(repeated_steps(PROBES[name].sight, segments, ends)) == by_time
    equal = np.allclose(
        streamed(PROBES[name], x, segments, ends), PROBES[name].predict(x, segments)
    )
    assert equal == (by_time == 0)


def test_time_steps_skip_gaps_and_cover_every_token() -> None:
    times = np.array([3.0, 3.25, 4.9, 5.0, 20.0, 20.25])
    assert time_steps(times, 2.0).tolist() == [3, 4, 6]
    assert time_steps(times, 1e9).tolist() == [6]
    assert time_steps(np.zeros(0), 1.0).tolist() == []
    assert segment_steps(np.zeros(0, np.int64)).tolist() == []


def test_lookahead_counts_seconds_not_tokens() -> None:
    times = np.array([0.0, 0.25, 9.0, 9.25])
    segments = np.array([0, 0, 0, 1])
    assert Sight("token").lookahead_s(segments, times) == 0.0
    assert Sight("segment").lookahead_s(segments, times) == 9.0
    assert Sight("block", 2).lookahead_s(segments, times) == 0.25
    assert Sight("take").lookahead_s(segments, times) == 9.25
    assert seconds_ahead(np.zeros(0, np.int64), np.zeros(0)) == 0.0
