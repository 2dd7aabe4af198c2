"""A wrong parameter stops in one line: parameter, value, what is allowed."""

from pathlib import Path

import pytest

from pjepa.core.section import read_section
from pjepa.pretrain.config import PjepaConfig
from pjepa.tools.params import check_params
from pjepa.ui.console import InputError

FAULTS = {
    "pjepa: {mask_ratio: 1.4}": ["pjepa.mask_ratio", "1.4", "> 0 and < 1"],
    "pjepa: {mask_ratio: high}": ["pjepa.mask_ratio", "'high'", "> 0 and < 1"],
    "pjepa: {mask_ration: 0.4}": ["pjepa.mask_ration", "unknown", "did you mean mask_ratio?"],
    "pjepaa: {}": ["pjepaa", "unknown parameter", "did you mean pjepa?"],
    "probe: {linear: {paper: {epoch: 3}}}": ["probe.linear.paper.epoch", "did you mean epochs?"],
    "pjepa: {width: 96, heads: 7}": ["pjepa", "heads 7", "width 96", "a divisor of 96"],
    "patches: {crop: 96, grid: 7}": ["patches", "grid 7", "6 patches a side"],
    "patches: {fps: 6.0}": ["patches.fps 6.0", "2 x tokens.fps", "8.0"],
    "pjepa: {attention: full}": ["pjepa.attention", "'full'", "clip_causal", "bidirectional"],
    "cells: {representations: [raw, rwa]}": ["cells.representations", "rwa"],
    "data: {demo: {val: 0.5, test: 0.6}}": ["data.demo", "val 0.5", "test 0.6"],
    "data: {source: folder, fold: 2}": ["data", "fold 2", "folder has one split"],
    "data: {source: folder, order: shuffled}": ["data", "order shuffled", "of the demo"],
    "data: {source: folders}": ["data.source", "'folders'", "mstcn"],
    "report: {bootstrap: 3, seed: -1}": ["report.bootstrap", "3", ">= 10", "and 1 more"],
    "patches: {checkpoint: /abs}": ["params.yaml: patches.checkpoint /abs is a path of one"],
    "tokens: {fps: .inf}": ["tokens.fps = inf: ", "finite"],
    "pjepa: {lr: .inf}": ["pjepa.lr = inf: ", "finite"],
    "probe: {linear: {l2: [0.1, .inf]}}": ["probe.linear.l2.1 = inf: ", "finite"],
    "probe: {attentive: {weight_decay: .nan}}": ["probe.attentive.weight_decay = nan: ", "finite"],
    "nothing": ["params.yaml", "expected sections"],
    "a: [1": ["params.yaml", "not YAML"],
}


@pytest.mark.parametrize("text", FAULTS)
def test_faults_are_one_line(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        check_params()
    message = str(caught.value)
    assert "\n" not in message
    assert [part for part in FAULTS[text] if part not in message] == []
    Path("params.yaml").unlink()
    with pytest.raises(InputError, match=r"params\.yaml: no such file"):
        check_params()


def test_short_exponents_are_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for text in ("1e-4", "1.0e-4", "1.0e-04", "0.0001"):
        Path("params.yaml").write_text(f"pjepa:\n  lr: {text}\n")
        assert read_section(PjepaConfig, "pjepa").lr == 1e-4
