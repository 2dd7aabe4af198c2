"""The recipes of docs/architecture.md, each followed with a dummy in a copy of the package."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
PROBE_CONFIG = """
from pjepa.probes.base.config import TrainedConfig
class DummyConfig(TrainedConfig):
    pass
CONFIG = DummyConfig
"""
PROBE_KIND = """
from pjepa.probes.base.trained import TrainedKind
from pjepa.probes.dummy.config import CONFIG
from pjepa.probes.foreground.probe import ForegroundProbe
KIND = TrainedKind("dummy", CONFIG, ForegroundProbe)
"""
SCRIPT = """
from pathlib import Path
import numpy as np, torch
from pjepa.tools.params import Params
from pjepa.probes.base.registry import probe_kind
params = Params.model_validate({"cells": {"probes": ["dummy"]}, "probe": {"dummy": {}}})
assert probe_kind("dummy").fits

from pjepa.takes.config import DataConfig
from pjepa.takes.sources.registry import open_source
assert open_source(DataConfig(source="dummy"), Path()) == "opened"

from pjepa.patches.backbone import backbone_facts, load_backbone
from pjepa.patches.config import PatchesConfig
config = PatchesConfig(backbone="vjepa2_1_vit_dummy", checkpoint="random", crop=32)
assert load_backbone(config).encoded(torch.zeros(1, 3, 4, 32, 32)).shape == (1, 2, 4, 48)

from pjepa.model.config import EncoderConfig
from pjepa.model.encoder import ProcedureEncoder
def sees(mode, first, then):
    torch.manual_seed(0)
    encoder = ProcedureEncoder(EncoderConfig(
        d_in=8, width=16, depth=1, heads=2, attention=mode, positions="1d", input_norm="none"))
    tokens = torch.randn(8, 8)
    before = encoder.eval().encode(tokens)[first].clone()
    tokens[then] += 1
    return not torch.equal(encoder.encode(tokens)[first], before)
assert sees("pairs", 0, 1) and not sees("pairs", 0, 2) and sees("pairs", 2, 0)
print("ok")
"""


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text, (file, old)
    file.write_text(text.replace(old, new, 1))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(
        ROOT / "pjepa", tmp_path / "pjepa", ignore=shutil.ignore_patterns("__pycache__")
    )
    return tmp_path / "pjepa"


def test_each_recipe_works(copy: Path) -> None:
    probe = copy / "probes/dummy"
    probe.mkdir()
    for name, text in (("__init__", ""), ("config", PROBE_CONFIG), ("probe", PROBE_KIND)):
        (probe / f"{name}.py").write_text(text)
    edit(
        copy / "takes/config.py",
        'SourceName = Literal["demo",',
        'SourceName = Literal["dummy", "demo",',
    )
    case = '        case "dummy":\n            return "opened"\n        case "demo":'
    edit(copy / "takes/sources/registry.py", '        case "demo":', case)
    row = '\nVARIANTS["vjepa2_1_vit_dummy"] = Variant(48, 4, 2, 96, (0, 1, 2, 3))\n'
    file = copy / "patches/vjepa21.py"
    file.write_text(file.read_text() + row)
    edit(copy / "model/config.py", 'AttentionMode = Literal["clip_causal",',
         'AttentionMode = Literal["pairs", "clip_causal",')  # fmt: skip
    edit(copy / "model/attention.py", '        if attention == "block_causal":',
         '        if attention == "pairs":\n            return self.index // 2\n'
         '        if attention == "block_causal":')  # fmt: skip
    environment = dict(os.environ, PYTHONPATH=str(copy.parent), OMP_NUM_THREADS="1")
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, cwd=copy.parent, env=environment, capture_output=True, text=True)
    assert done.stdout == "ok\n", done.stderr
