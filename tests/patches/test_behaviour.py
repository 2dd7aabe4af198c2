"""Store keys follow what the code does to a canned clip, not how it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from pjepa.patches import identity as module
from pjepa.patches import preprocess, vjepa21
from pjepa.patches.config import PatchesConfig
from pjepa.patches.identity import FIRST, KNOWN, REFERENCE, behaviour, canned_values
from pjepa.patches.store import store_key
from pjepa.storage.reading import read_json

CONFIG = PatchesConfig(backbone="vjepa2_1_vit_tiny", checkpoint="random", crop=32)
TIMM = PatchesConfig(backbone="timm:vit_tiny_patch16_224", frames_per_window=8)


@pytest.fixture(autouse=True)
def fresh() -> None:
    canned_values.cache_clear()


def test_the_code_as_it_is_has_the_keys_that_stores_have_already(tmp_path: Path) -> None:
    assert behaviour(tmp_path, CONFIG) == FIRST
    assert behaviour(tmp_path, TIMM) == FIRST
    assert list(tmp_path.iterdir()) == []
    known = store_key("video", {"crop": 64}, None, "weights")
    assert store_key("video", {"crop": 64}, None, "weights", FIRST) == known


def test_another_cpu_keeps_the_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = tuple(value + 1e-4 for value in REFERENCE["vjepa"])
    monkeypatch.setattr(module, "canned_values", lambda family: found)
    assert behaviour(tmp_path, CONFIG) == FIRST


def test_a_changed_mean_is_another_behaviour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preprocess, "MEAN", (0.486, 0.456, 0.406))
    name = behaviour(tmp_path, CONFIG)
    assert name != FIRST
    assert list(read_json(tmp_path / KNOWN)) == [name]
    assert behaviour(tmp_path, CONFIG) == name
    monkeypatch.setattr(preprocess, "MEAN", (0.5, 0.5, 0.5))
    canned_values.cache_clear()
    assert behaviour(tmp_path, CONFIG) not in (FIRST, name)


def test_a_changed_encoder_is_another_behaviour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vjepa21, "LAST_POSITION", 14.0)
    for part in vars(vjepa21).values():
        if hasattr(part, "cache_clear"):
            part.cache_clear()
    assert behaviour(tmp_path, CONFIG) != FIRST
