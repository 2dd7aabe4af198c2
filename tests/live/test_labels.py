"""Encoder and probe together: labels as offline, whoever says where segments end."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pjepa.live.labels import LabelStream, StepRuns
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.segments import SegmentRule
from pjepa.probes.attentive.config import AttentiveConfig
from pjepa.probes.base.trained import Task
from pjepa.probes.ltcausal.config import LTCausalConfig
from tests.probes.kinds import new_probe

TASK = Task(16, 3, 0)
LAYERS = {"stages": 2, "layers": 2, "width": 8, "window": 4, "stride": 4, "reduction": 1}
PROBES = {
    "attentive": new_probe("attentive", AttentiveConfig(window=9, chunk=4, width=8), TASK, 0),
    "ltcausal": new_probe("ltcausal", LTCausalConfig(**LAYERS), TASK, 0),
}


def encoder(attention):
    torch.manual_seed(0)
    shape = {"d_in": 6, "width": 16, "depth": 2, "heads": 2, "block": 4}
    return ProcedureEncoder(EncoderConfig(attention=attention, **shape)).eval()


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("attention", ["clip_causal", "block_causal", "token_causal"])
@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 99))
def test_an_outside_signal_ends_segments(probe, attention, lengths, seed):
    model, draw = encoder(attention), random.Random(seed)
    x = np.random.default_rng(seed).normal(size=(sum(lengths), 6)).astype(np.float32)
    stream, found, end = LabelStream(model, PROBES[probe], SegmentRule("annotated")), [], 0
    segments = np.repeat(np.arange(len(lengths)), lengths)
    for length in lengths:
        stop = end + length
        while end < stop:
            count = min(stop - end, draw.randint(1, 5))
            found.append(stream.push(x[end : end + count]))
            end += count
        found.append(stream.end_segment())
        seen = model.encode(x[:end], np.bincount(segments[:end]).tolist()).numpy()
        expected = PROBES[probe].predict(seen, segments[:end])
        so_far = np.concatenate([*found, stream.peek()])
        np.testing.assert_allclose(so_far, expected, atol=1e-5)
        if attention != "block_causal":
            assert stream.waiting == 0  # the signal decided everything
    found.append(stream.finish())
    np.testing.assert_allclose(np.concatenate(found), expected, atol=1e-5)


def test_a_jump_in_time_ends_a_step():
    runs = StepRuns(0.25)
    ended = [runs.push(t, 1, 0.5) for t in (0.0, 0.25, 2.0)]
    assert ended == [None, None, (0.0, 0.5, 1, 0.5)]
    assert runs.push(2.25, 2, 1.0) == (2.0, 2.25, 1, 0.5)
    assert runs.finish() == (2.25, 2.5, 2, 1.0)
    assert StepRuns(0.25).finish() is None
