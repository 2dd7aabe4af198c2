"""The paper's models have as many parameters as its sizes say; on `meta`, so nothing is allocated.

Sizes are the paper's (Sec. 3.2, Supplement) and, where it gives none, the release's: width 1408,
16 heads, 4 layers, 2 of the predictor.
"""

import pytest
import torch

from benchmarks.sizes import model_of
from pjepa.patches.vjepa21 import VARIANTS, VJEPA21Encoder
from pjepa.pooler.action import ActionPooler, ActionShape
from pjepa.probes.attentive.probe import AttentiveProbe
from pjepa.probes.base.trained import Task
from pjepa.tools.presets import preset_values

WIDTH, DEPTH, PREDICTOR_DEPTH = 1408, 4, 2
PATCHES = 24  # a side of V-JEPA 2.1's grid at 384 px


def linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def mlp(width: int) -> int:
    return linear(width, 4 * width) + linear(4 * width, width)


def block(width: int) -> int:
    return linear(width, 3 * width) + linear(width, width) + mlp(width) + 4 * width


def encoder(width_in: int) -> int:
    projection = 0 if width_in == WIDTH else 2 * width_in + linear(width_in, WIDTH)
    return projection + DEPTH * block(WIDTH) + 2 * WIDTH


def size(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(
    ("preset", "width_in"),
    [("egoexo4d", 1408), ("egoprocel-i3d-streaming", 2048), ("assembly101-vjepa-mean", 1408)],
)
def test_encoder_and_predictor_of_the_paper(preset: str, width_in: int) -> None:
    model = model_of(preset_values(preset).pjepa, width_in)
    assert size(model.student) == size(model.teacher) == encoder(width_in)
    assert size(model.predictor) == PREDICTOR_DEPTH * block(WIDTH) + 3 * WIDTH
    assert {parameter.device.type for parameter in model.parameters()} == {"meta"}


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
        classifier = AttentiveProbe(values.probe.attentive, Task(WIDTH, 278))
    student = model_of(values.pjepa, WIDTH).student
    assert round(sum(map(size, (backbone, pooler, student, classifier))) / 1e9, 1) == 1.2
