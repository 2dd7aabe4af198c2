import json
import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pjepa.model.attention import layout_of_segments, layout_of_takes
from pjepa.model.encoder import ProcedureEncoder
from pjepa.ui.console import InputError
from tests.model.test_stream import CAUSAL, encoder


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 7), min_size=2, max_size=8),
    st.sampled_from(CAUSAL),
    st.sampled_from(("none", "standardize", "causal_center")),
    st.sampled_from(("annotated", "found")),
    st.data(),
)
def test_the_future_never_changes_the_past_bit_for_bit(lengths, attention, norm, kind, data):
    """Not even through where a found segment ends: closed segments stay as they are."""
    model = encoder(attention, input_norm=norm, segments=kind, found_tokens=4, found_max=9)
    x = torch.randn(sum(lengths), 6)
    segment = np.repeat(np.arange(len(lengths)), lengths)
    if kind == "found":
        segment, lengths = model.segments(x.numpy()), None
    block = model.block(layout_of_takes([segment]))
    later = data.draw(st.integers(1, int(block.max()) or 1))
    changed = torch.where((block >= later)[:, None], torch.randn_like(x) * 10, x)
    before, after = model.encode(x, lengths), model.encode(changed, lengths)
    assert torch.equal(before[block < later], after[block < later])


def test_segments_need_no_annotation_where_they_are_fixed_or_not_used():
    x = torch.randn(11, 6)
    fixed = encoder(segments="fixed", block=4)
    assert torch.equal(fixed.encode(x), fixed.encode(x, [4, 4, 3]))
    segment = np.array([5, 5, 5, 5, -1, -1, -1, -1, 5, 5, 5])  # c(i) counts runs, gaps included
    assert torch.equal(fixed.encode(x), fixed.encode(x, segment=segment))
    flat = encoder("block_causal", positions="1d", block=4)
    assert torch.equal(flat.encode(x), flat.encode(x, [5, 6]))


@pytest.mark.parametrize("attention", [*CAUSAL, "bidirectional"])
@pytest.mark.parametrize("input_norm", ["none", "take_center", "causal_center"])
def test_batch_composition_and_order_do_not_matter(attention, input_norm):
    model = encoder(attention, input_norm=input_norm)
    takes = [[3, 1, 5], [2], [4, 4, 1, 1]]
    parts = [torch.randn(sum(t), 6) for t in takes]
    alone = [model(x, layout_of_segments([t])) for x, t in zip(parts, takes, strict=True)]
    for order in ((0, 1, 2), (2, 0, 1)):
        together = model(
            torch.cat([parts[i] for i in order]), layout_of_segments([takes[i] for i in order])
        )
        expected = torch.cat([alone[i] for i in order])
        torch.testing.assert_close(together, expected, atol=1e-5, rtol=1e-5)


def test_saved_and_loaded_it_is_the_same(tmp_path):
    model = encoder(input_norm="standardize")
    model.save_pretrained(tmp_path)
    again = ProcedureEncoder.from_pretrained(tmp_path)
    x, expected = torch.randn(5, 6), None
    for lengths in ([2, 3], (2, np.int32(3)), np.array([2, 3]), torch.tensor([2, 3])):
        expected = model.encode(x, lengths) if expected is None else expected
        assert torch.equal(again.encode(x, lengths), expected)
    assert again.config == model.config


@pytest.mark.parametrize(
    ("tokens", "segments", "message"),
    [
        (torch.randn(5, 7), [5], "takes [T, 6]"),
        (torch.randn(5, 6), [2, 2], "sum to 4"),
        (torch.randn(5, 6), None, "segment_lengths"),
        (torch.randn(5, 6), [6, -1], "segment_lengths[1] is -1; expected a count of"),
        (torch.randn(5, 6), [5, 0], "segment_lengths[1] is 0"),
        (torch.randn(5, 6), [2.5, 2.5], "segment_lengths[0] is 2.5"),
        (torch.randn(5, 6), ["5"], "segment_lengths[0] is '5'"),
        (torch.zeros(0, 6), [], "no token to encode"),
        (torch.zeros(0, 6), None, "no token to encode"),
    ],
)
def test_wrong_input_is_named(tokens, segments, message):
    with pytest.raises(InputError, match=re.escape(message)):
        encoder().encode(tokens, segments)


def test_a_folder_without_an_encoder_is_named_and_the_one_inside_it(tmp_path):
    (tmp_path / "models").mkdir()
    with pytest.raises(InputError, match=r"models: holds no encoder \(no config\.json\)$"):
        ProcedureEncoder.from_pretrained(tmp_path / "models")
    encoder().save(tmp_path / "models/pjepa")
    with pytest.raises(InputError, match=r"no config\.json\); did you mean .*models/pjepa\?$"):
        ProcedureEncoder.from_pretrained(tmp_path / "models")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 12}, "model.safetensors: does not fit config.json: proj.1.weight is [16, 6] "),
        ({"d_in": 8}, "mean is [6] instead of [8] (and "),
        ({"depth": 4}, "blocks.3.norm1.weight is missing (and 11 more)"),
        ({"depth": 2}, " is unknown (and 11 more)"),
        ({"mlp_ratio": 2.0}, "blocks.0.mlp.fc1.weight is [64, 16] instead of [32, 16] (and "),
        ({"heads": 5}, "config.json: heads 5 does not divide width 16"),
    ],
)
def test_a_config_of_other_weights_is_refused_with_what_differs(tmp_path, changes, message):
    model = encoder()
    model.save(tmp_path)
    config = {**model.config.model_dump(), **changes}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=re.escape(message)):
        ProcedureEncoder.from_pretrained(tmp_path)


def test_under_autocast_statistics_stay_in_full_precision():
    model, x, layout = encoder(input_norm="causal_center"), torch.randn(9, 6), [[4, 5]]
    expected = model.normalised(x, layout_of_segments(layout))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(model.normalised(x, layout_of_segments(layout)), expected)


def test_the_encoder_drops_only_while_training():
    model, x, layout = encoder(dropout=0.5), torch.randn(12, 6), layout_of_segments([[5, 7]])
    still = model(x, layout)
    assert torch.equal(still, model(x, layout))
    model.train()
    first, second = model(x, layout), model(x, layout)
    assert not torch.equal(first, second)
    assert not torch.equal(first, still)
