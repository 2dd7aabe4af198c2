"""Released probe files: nesting and names as V-JEPA writes them."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pjepa.errors import InputError
from pjepa.pooling.released import released_classifier

GOLDEN = load_file(Path(__file__).parents[1] / "golden/vjepa21/pooler.safetensors")
PREFIX = "cls_d4_c5/state/"
STATE = {k.removeprefix(PREFIX): v for k, v in GOLDEN.items() if k.startswith(PREFIX)}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two heads of a probe: zeros, then the golden one."""
    heads = [{f"module.{k}": v * scale for k, v in STATE.items()} for scale in (0.0, 1.0)]
    torch.save({"classifiers": heads, "opt": [{}], "epoch": 20}, tmp_path / "probe.pt")
    return tmp_path / "probe.pt"


def test_released_probe_gives_the_official_logits(file: Path) -> None:
    model = released_classifier(file, place=1, heads=4)
    with torch.no_grad():
        logits = model(GOLDEN["cls_d4_c5/input"])
    assert (logits - GOLDEN["cls_d4_c5/out"]).abs().max() <= 1e-5


def test_other_files_are_named(file: Path) -> None:
    with pytest.raises(InputError, match=r"holds 2 classifiers, there is no 5"):
        released_classifier(file, place=5, heads=4)
    with pytest.raises(InputError, match="no such file"):
        released_classifier(file.with_name("nothing.pt"))
    torch.save({"encoder": {}}, file)
    with pytest.raises(InputError, match="not a released attentive probe"):
        released_classifier(file)
