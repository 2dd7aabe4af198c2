"""What a trained encoder is used for, on the pretend device: probes, features, streams."""

from typing import get_args

import numpy as np
import pytest

from pjepa.model.config import AttentionMode, EncoderConfig, InputNorm
from pjepa.model.encoder import ProcedureEncoder
from pjepa.model.stream import EncoderStream
from pjepa.probes.base.config import ProbeCommonConfig
from pjepa.probes.base.scoring import LabelledTake
from pjepa.probes.base.streamed import streamed
from pjepa.probes.base.trained import Fitting
from pjepa.probes.linear.config import LinearConfig, PaperFitConfig
from pjepa.probes.linear.probe import LinearProbe, fit_converged, fit_paper
from pjepa.tools import selftest
from tests.pretend.device import NAME, counted
from tests.probes.kinds import KINDS
from tests.probes.test_training import CLASSES, SMALL, TASK, takes

SMALL_ENCODER = {"d_in": 6, "width": 16, "depth": 2, "heads": 2, "attention": "clip_causal"}


@pytest.mark.parametrize("kind", SMALL)
def test_trained_probes_fit_predict_and_save(kind, tmp_path):
    """Prefixes too, by probes that have to see a take's prefixes one by one."""
    config = SMALL[kind].model_copy(update={"epochs": 1})
    common = ProbeCommonConfig(threads=1, input_norm="standardize", device=NAME)
    fitting = Fitting(KINDS[kind], config, TASK, common, takes(2), takes(1, 1))
    there = fitting.fit(0, tmp_path / "state.pt", lambda *_: None)
    there.save(tmp_path / "probe")
    here, take = KINDS[kind].load(tmp_path / "probe"), takes(1, 2)[0]
    ends = np.arange(4, len(take.features) + 4, 4).clip(max=len(take.features))
    for predict in (
        lambda probe: probe.predict(take.features, take.segments),
        lambda probe: streamed(probe, take.features, take.segments, ends),
    ):
        np.testing.assert_allclose(predict(there), predict(here), atol=1e-4)


def test_the_linear_probe_is_fitted_there_and_is_the_same(tmp_path):
    examples = [LabelledTake(t.features.astype(np.float32), t.labels) for t in takes(4)]
    config = LinearConfig(l2=(1e-1, 1e-2), paper=PaperFitConfig(epochs=2))
    for fit in (
        lambda device: fit_converged(examples[:3], examples[3:], CLASSES, config, device),
        lambda device: fit_paper(examples, CLASSES, config.paper, 0, device),
    ):
        here, there = fit("cpu"), fit(NAME)
        assert there.weight.device.type == NAME
        np.testing.assert_allclose(
            there.predict(examples[0].features), here.predict(examples[0].features), atol=1e-5
        )
        there.save(tmp_path)
        assert LinearProbe.load(tmp_path).weight.device.type == "cpu"


@pytest.mark.parametrize(
    "kind", [{"input_norm": "causal_center", "style_rank": 3}, {"segments": "found"}]
)
def test_a_stream_waits_once_per_segment_at_most(kind, tmp_path):
    encoder = ProcedureEncoder(EncoderConfig(**SMALL_ENCODER | kind)).eval()
    segments = [np.random.default_rng(n).normal(size=(5, 6)).astype(np.float32) for n in range(4)]
    expected = [part.numpy() for part in map(encoder.stream().push, segments)]
    encoder.to(NAME)
    stream, found = encoder.stream(), []
    with counted() as waits:
        for segment in segments[:2]:
            found.append(stream.push(segment))
    assert waits.count("sync") <= 2, waits.table()
    assert waits.count("upload") == 0, waits.table()
    stream.save(tmp_path)
    stream = EncoderStream.load(encoder, tmp_path)
    found += map(stream.push, segments[2:])
    for ours, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours.cpu().numpy(), wanted, atol=1e-5)


@pytest.mark.parametrize("attention", get_args(AttentionMode))
def test_encoding_waits_for_nothing_inside(attention):
    tokens = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    for norm in get_args(InputNorm):
        settings = SMALL_ENCODER | {"attention": attention, "input_norm": norm, "style_rank": 3}
        encoder = ProcedureEncoder(EncoderConfig(**settings)).eval().to(NAME)
        with counted() as waits:
            encoder.encode(tokens, [10, 20, 10])
        assert waits.count("sync") == 0, waits.table()


def test_selftest_runs_the_real_paths():
    report = selftest.run_selftest(NAME, width=32, heads=2, tokens=90)
    assert report["ok"], report
    assert report["kernel"] == "flex"
