"""presets/release-*.yaml are the release's training recipes and its files' architectures."""

from pathlib import Path

import pytest

from pjepa.core.section import read_params
from pjepa.model.release import RELEASED
from pjepa.nn.fit import learning_rate
from pjepa.pretrain.setup import encoder_config
from pjepa.tools.params import Params, dotted
from pjepa.tools.presets import preset_names

PRESETS = Path(__file__).parents[2] / "presets"
ALL = [name for name in preset_names(PRESETS) if name.startswith("release-")]
# preset: (the released file it trains or evaluates, d_in)
EVALUATED = {
    "release-eval-assembly101-block": ("assembly101_tsm_block64", 2048),
    "release-eval-assembly101-clip": ("assembly101_tsm_clip", 2048),
    "release-eval-cholec80": ("lemon_plstitch_block32", 768),
    "release-eval-egoprocel-fact": ("egoprocel_fact_features_clip", 2048),
    "release-eval-egoprocel-pooled": ("egoprocel_pooled_clip", 1408),
    "release-eval-m2cai16": ("lemon_plstitch_block32", 768),
}
ENCODERS = {
    name.replace("-eval", ""): released for name, released in EVALUATED.items() if released[1] > 768
} | {"release-lemon-block": ("lemon_plstitch_block32", 768)}
# mask, epochs, epochs (from 1) of the last full and the first lower rate, takes x passes a step,
# segments, run, crop, probed every, chosen by
TRAINING = {
    "release-assembly101-block": (0.6, 1000, (499, 500), (24, 2), 32, None, None, 20, "combined"),
    "release-assembly101-clip": (0.6, 1000, (499, 500), (24, 2), 32, None, None, 20, "combined"),
    "release-egoprocel-fact": (0.8, 1000, (499, 500), (4, 2), 20, 1024, None, 20, "acc"),
    "release-egoprocel-pooled": (0.6, 1000, (499, 500), (4, 2), 20, 1024, None, 20, "acc"),
    "release-lemon-block": (0.6, 1000, (600, 601), (64, 1), None, None, 4096, 10, "acc"),
    "release-lemon-bidirectional": (0.6, 100, (60, 61), (1, 8), None, None, 4096, 10, "acc"),
}


def preset(name):
    return Params.model_validate(read_params(PRESETS / f"{name}.yaml"))


@pytest.mark.parametrize("name", [*ENCODERS, *EVALUATED])
def test_the_encoder_is_the_released_files(name):
    """Where the mode uses no block (clip-causal), the block does not count."""
    released, d_in = {**ENCODERS, **EVALUATED}[name]
    expected = RELEASED[released].architecture
    ours = encoder_config(preset(name).pjepa, d_in).model_dump()
    theirs = expected.encoder_config().model_dump()
    unused = {"segments"} if ours["positions"] == "1d" else {"block"}
    assert {k: v for k, v in ours.items() if k not in unused} == {
        k: v for k, v in theirs.items() if k not in unused
    }
    pjepa = preset(name).pjepa
    assert (pjepa.predictor_depth, pjepa.predictor_heads) == (2, expected.pred_heads)


@pytest.mark.parametrize("name", EVALUATED)
def test_an_evaluation_trains_nothing_but_probes(name):
    params = preset(name)
    assert params.pjepa.init_from == f"release:{EVALUATED[name][0]}"
    assert (params.pjepa.epochs, params.select.by) == (0, "last")
    assert (params.tokens.dtype, params.features.dtype) == ("float32", "float32")
    drops = (20, 26) if EVALUATED[name][1] == 768 else (5, 15)
    fit = params.probe.linear.paper
    assert (fit.epochs, fit.lr, fit.weight_decay, fit.milestones) == (30, 1e-3, 0, drops)


@pytest.mark.parametrize("name", TRAINING)
def test_training_is_the_releases(name):
    mask, epochs, fall, batch, segments, run, crop, every, metric = TRAINING[name]
    params = preset(name)
    pjepa, select = params.pjepa, params.select
    assert (pjepa.mask_ratio, pjepa.epochs, pjepa.snapshot_every) == (mask, epochs, every)
    assert (pjepa.max_segments, pjepa.max_run, pjepa.crop_tokens) == (segments, run, crop)
    assert (pjepa.batch_takes, pjepa.accumulate) == batch
    assert (select.by, select.metric) == ("val", metric)
    assert (pjepa.ema, pjepa.weight_decay, pjepa.clip_grad) == (0.999, 0.04, 1)
    assert (pjepa.loss_reduction, pjepa.target_norm) == ("mean", "none")
    assert (pjepa.warmup_steps, pjepa.dropout, pjepa.input_norm) == (0, 0.0, "none")
    rates = [
        learning_rate(pjepa.lr, epoch - 1, 0, pjepa.milestones, pjepa.gamma, pjepa.warmup_steps)
        for epoch in fall
    ]
    assert rates == pytest.approx([1e-4, 1e-5])
    # The release counts takes: 6930 tokens is its longest window.
    assert pjepa.batch_takes * (pjepa.crop_tokens or 6930) <= pjepa.batch_tokens


@pytest.mark.parametrize("name", ALL)
def test_the_stream_is_the_archives_and_only_what_differs_is_written(name):
    """Rates and sequences as the release's loaders build them; and the precision, always."""
    assert name in {*TRAINING, *EVALUATED}
    params = preset(name)
    rates = {"assembly101": 3.75, "egoprocel_fact": 4.0, "egoprocel_pooled": 4.0}
    assert params.data.source == "archive"
    assert params.tokens.fps == rates.get(params.data.archive.set, 1.0)
    annotated = params.data.archive.set in rates
    expected = ("drop", "duplicate") if annotated else ("keep", "clip")
    assert (params.tokens.gaps, params.tokens.overlap) == expected
    defaults = dotted(Params().model_dump(mode="json"))
    values = dotted(read_params(PRESETS / f"{name}.yaml"))
    repeated = {place for place, value in values.items() if value == defaults[place]}
    assert repeated <= {"pjepa.precision"}


@pytest.mark.parametrize("name", ALL)
def test_a_header_says_what_one_needs(name):
    text = (PRESETS / f"{name}.yaml").read_text()
    for word in ("command", "data", "hardware", "numbers", "open", "unlike"):
        assert f"\n# {word} " in text
    assert f"pjepa preset {name} " in text
    if name in ENCODERS:
        assert f"release:{ENCODERS[name][0]}" in text
