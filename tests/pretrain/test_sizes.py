"""The paper's models have as many parameters as it says; on `meta`, so nothing is allocated."""

import torch

from benchmarks.sizes import model_of
from pjepa.patches.vjepa21 import VARIANTS, VJEPA21Encoder
from pjepa.pooler.action import ActionPooler, ActionShape
from pjepa.probes.attentive.probe import AttentiveProbe
from pjepa.probes.base.trained import Task
from pjepa.tools.presets import preset_values

WIDTH, CLASSES = 1408, 278
PATCHES = 24  # a side of V-JEPA 2.1's grid at 384 px


def size(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_the_whole_stack_has_the_papers_1_2_billion() -> None:
    """V-JEPA 2.1, pooler, encoder and streaming classifier of Ego-Exo4D (paper, end of Sec. 4)."""
    values = preset_values("egoexo4d")
    p = values.pooler
    shape = ActionShape(
        rows=PATCHES, columns=PATCHES, width_in=WIDTH, width=WIDTH, window=p.window,
        queries=p.window, depth=p.depth, heads=p.heads, mlp_ratio=p.mlp_ratio, dropout=p.dropout,
        positions=p.positions,
    )  # fmt: skip
    with torch.device("meta"):
        backbone = VJEPA21Encoder(VARIANTS[values.patches.backbone])
        pooler = ActionPooler(shape)
        classifier = AttentiveProbe(values.probe.attentive, Task(WIDTH, CLASSES))
    model = model_of(values.pjepa, WIDTH)
    # Four blocks of 12 d^2 weights and 13 d biases and norms, and the last norm: no projection.
    assert size(model.student) == 4 * (12 * WIDTH**2 + 13 * WIDTH) + 2 * WIDTH
    stack = (backbone, pooler, model.student, classifier)
    assert round(sum(map(size, stack)) / 1e9, 1) == 1.2
