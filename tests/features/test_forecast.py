import numpy as np
import pytest
import torch

from pjepa.core.runs import token_offsets
from pjepa.features.encoded import forecast_columns, forecast_info
from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.forecast import Forecaster
from pjepa.model.neighbours import NeighbourHeads
from pjepa.streams.provenance import StreamInfo
from pjepa.streams.stream import Take


def forecaster(**changes):
    torch.manual_seed(0)
    shape = {"d_in": 6, "width": 16, "depth": 1, "heads": 2, "block": 4, **changes}
    encoder = ProcedureEncoder(EncoderConfig(attention=shape.pop("attention"), **shape)).eval()
    return Forecaster(encoder, NeighbourHeads(16, 6, (1,)))


def test_every_token_gets_its_segments_numbers():
    made = forecaster(attention="clip_causal")
    lengths = [3, 1, 4]
    segment = np.repeat([5, 7, 9], lengths).astype(np.int32)  # as annotated, with gaps
    x = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)
    take = Take("t", x, np.arange(8) / 4, segment, token_offsets(segment))
    expected = made.tell(x, lengths).columns(lengths)
    np.testing.assert_array_equal(forecast_columns(made, take), expected)


@pytest.mark.parametrize(
    ("changes", "lookahead"),
    [
        ({"attention": "clip_causal"}, 9.0),  # the longest segment
        ({"attention": "token_causal", "segments": "fixed"}, 1.0),  # the block it waits for
        (
            {"attention": "block_causal", "segments": "found", "found_tokens": 8, "found_max": 20},
            6.0,  # and the block that its last token sees the end of
        ),
    ],
)
def test_provenance_waits_for_the_end_of_the_segment(changes, lookahead):
    stream = StreamInfo(source="test", fps=4.0, width=6)
    info = forecast_info(stream, forecaster(**changes), 9.0, "none")
    assert info.width == 7
    assert info.provenance.lookahead_s == lookahead
    assert not info.provenance.whole_take
