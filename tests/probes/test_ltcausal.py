"""LT-Causal: what a frame may not see changes nothing, and neither do padding and batches."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pjepa.probes.base.trained import Task
from pjepa.probes.ltcausal.config import LTCausalConfig
from pjepa.probes.ltcausal.probe import LTCausal, segment_order
from pjepa.ui.console import InputError
from tests.probes.ltc_models import (
    FILES,
    NO_DROPOUT,
    golden,
    golden_model,
    obvious_logits,
    random_take,
)

WIDTH, CLASSES = 6, 4
LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=7)  # of a take's segments


def small_model(seed: int = 0, **options: int) -> LTCausal:
    config = LTCausalConfig(
        stages=3, layers=4, width=16, window=8, stride=5, heads=2, **options, **NO_DROPOUT
    )  # fmt: skip
    torch.manual_seed(seed)
    return LTCausal(config, Task(WIDTH, CLASSES)).eval()


def segments_of(lengths: list[int]) -> Tensor:
    return torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))


@pytest.mark.parametrize("file", FILES)
def test_equals_the_derived_golden(file: str) -> None:
    tensors, _ = golden(f"ltcausal_derived_{file}")
    features, segments = golden(file)[0]["a.input"][0].T, tensors["segment_id"]
    model = golden_model(file, causal=True)
    for name, end in (("full", 53), ("prefix11", 11), ("prefix28", 28), ("prefix37", 37)):
        found = torch.stack(model(features[:end], segments[:end])).transpose(1, 2)
        torch.testing.assert_close(found, tensors[f"{name}.logits"][:, 0], atol=2e-5, rtol=0)


@settings(max_examples=15, deadline=None)
@given(lengths=LENGTHS, seed=st.integers(0, 99))
def test_equals_the_obvious_model(lengths: list[int], seed: int) -> None:
    model, segments = small_model(seed).double(), segments_of(lengths)
    features = random_take(len(segments), WIDTH, seed).double()
    expected = obvious_logits(model, features, segments)
    torch.testing.assert_close(model(features, segments), expected, atol=1e-9, rtol=0)


@settings(max_examples=25, deadline=None)
@given(lengths=LENGTHS, seed=st.integers(0, 99), size=st.sampled_from([1.0, 1e3]))
def test_the_future_changes_no_bit_of_the_past(lengths: list[int], seed: int, size: float) -> None:
    model, segments = small_model(seed), segments_of(lengths)
    features = random_take(len(segments), WIDTH, seed)
    whole = model(features, segments)
    for segment in range(len(lengths) - 1):
        end = sum(lengths[: segment + 1])
        other, rest = features.clone(), len(segments) - end
        other[end:] = size * random_take(rest, WIDTH, seed + 1000)
        changed = segments.clone()
        changed[end:] = torch.arange(rest) // 3 + segment + 1  # later boundaries are future, too
        for ours, theirs in zip(whole, model(other, changed), strict=True):
            assert torch.equal(ours[:end], theirs[:end])
            assert not torch.equal(ours[end:], theirs[end:])


def test_the_present_segment_is_seen_to_its_end() -> None:
    model, segments = small_model(), segments_of([6, 6])
    features = random_take(12, WIDTH, 0)
    other = features.clone()
    other[11] += 1
    changed = (model.predict(features, segments) != model.predict(other, segments)).any(1)
    assert changed[6:].all()
    assert not changed[:6].any()


def test_a_gap_is_a_segment_in_its_place() -> None:
    ids = torch.tensor([[-1, -1, 4, 4, -1, 9, -1]])
    assert segment_order(ids).tolist() == [[0, 0, 1, 1, 2, 3, 4]]
    model, features = small_model(), random_take(7, WIDTH, 0)
    assert torch.equal(
        model.predict(features, ids[0]), model.predict(features, segment_order(ids)[0])
    )


def test_missing_segments_are_named() -> None:
    model, features = small_model(), random_take(9, WIDTH, 0)
    with pytest.raises(InputError, match="needs the segments"):
        model(features)
    with pytest.raises(InputError, match="no annotated segment"):
        model(features, torch.full((9,), -1))
    with pytest.raises(InputError, match=r"segments are \(8,\) for 9 frames"):
        model(features, torch.zeros(8))
