"""The action pooler: every frame one token, windows that do not see each other, no padding seen."""

from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from pjepa.pooler.action import ActionPooler, ActionShape, CrossBlock, SelfBlock, padded
from pjepa.pooler.stored import (
    CONFIG,
    MODEL,
    Alignment,
    Pooler,
    common_config,
    fold_file,
    load_pooler,
    write_weights,
)
from pjepa.storage.writing import write_json
from pjepa.ui.console import InputError
from tests.patches.patch_infos import patch_info

FPS = 4.0
INFO = patch_info(rows=2, columns=3, width=8)
SHAPE = ActionShape(
    rows=2, columns=3, width_in=8, width=12, window=5, queries=5, depth=2, heads=2,
    mlp_ratio=2.0, dropout=0.0, positions="spatiotemporal",
)  # fmt: skip
RNG = np.random.default_rng(0)
PATCHES = RNG.normal(size=(33, 6, 8)).astype(np.float16)


def seeded(shape: ActionShape = SHAPE, seed: int = 0) -> ActionPooler:
    """A pooler whose weights are large enough for every difference to show."""
    torch.manual_seed(seed)
    model = ActionPooler(shape)
    model.pooler.initialise(0.3)
    return model.eval()


def stored(folder: Path, shape: ActionShape = SHAPE, scope: str = "segment") -> Pooler:
    """A pooler through its files, with a second one for the train take `seen`."""
    config = common_config("action", INFO, shape.width, shape.window, shape.per_step, scope)
    config["provenance"] = {"train_labels": True, "selection_labels": "holdout", "folds": 1}
    config |= {"model": asdict(shape), "fold_of": {"seen": 0}, "batch_windows": 3}
    folder.mkdir(exist_ok=True)
    write_json(folder / CONFIG, config)
    write_weights(folder / MODEL, seeded(shape))
    shift = np.ones(shape.width, np.float32)
    turn = Alignment(np.eye(shape.width, dtype=np.float32)[::-1].copy(), shift, 3 * shift)
    write_weights(folder / fold_file(0), seeded(shape, 1), turn)
    return load_pooler(folder)


@pytest.fixture(scope="module")
def pooler(tmp_path_factory: pytest.TempPathFactory) -> Pooler:
    return stored(tmp_path_factory.mktemp("pooler"))


def limits(lengths: list[int]) -> np.ndarray:
    """Boundaries in seconds of segments laid end to end, in steps."""
    ends = np.cumsum(lengths) / FPS
    return np.stack([ends - np.array(lengths) / FPS, ends], axis=1)


LENGTHS = st.lists(st.integers(1, 14), min_size=1, max_size=8)


@settings(deadline=None, max_examples=40)
@given(LENGTHS, st.booleans())
def test_every_frame_gets_exactly_one_token_from_inside_its_segment(
    pooler: Pooler, lengths: list[int], annotated: bool
) -> None:
    steps = min(sum(lengths), 33)
    patches = PATCHES[:steps]
    boundaries = limits(lengths) if annotated else None
    found = pooler.tokens(patches, boundaries)
    assert found.shape == (steps, 12)
    assert np.isfinite(found).all()
    cuts = np.minimum(np.concatenate([[0], np.cumsum(lengths)]), steps) if annotated else [0, steps]
    expected = [
        pooler.window_tokens(patches[start : min(start + 5, stop)])
        for first, stop in pairwise(cuts)
        for start in range(int(first), int(stop), 5)
    ]
    np.testing.assert_allclose(found, np.concatenate(expected), atol=2e-5)


def test_a_take_is_one_run_when_the_scope_is_the_take(tmp_path: Path) -> None:
    free = stored(tmp_path / "free", scope="take")
    boundaries = limits([3, 9, 21])
    np.testing.assert_array_equal(free.tokens(PATCHES, boundaries), free.tokens(PATCHES))
    inside = stored(tmp_path / "inside").tokens(PATCHES, boundaries)
    assert np.abs(inside - free.tokens(PATCHES)).max() > 0.01


def test_no_window_reaches_across_a_cut(tmp_path: Path) -> None:
    free = stored(tmp_path, scope="take")
    found = free.tokens(PATCHES, jumps_s=[6.5 / FPS, 12 / FPS])
    alone = [free.tokens(part) for part in (PATCHES[:7], PATCHES[7:12], PATCHES[12:])]
    np.testing.assert_allclose(found, np.concatenate(alone), atol=2e-5)
    assert np.abs(found - free.tokens(PATCHES)).max() > 0.01


def test_other_segments_are_never_seen(pooler: Pooler) -> None:
    boundaries = limits([3, 9, 21])
    changed = PATCHES.copy()
    changed[3:12] += 1
    before, after = pooler.tokens(PATCHES, boundaries), pooler.tokens(changed, boundaries)
    same = np.isclose(before, after, atol=1e-6).all(axis=1)
    assert same.tolist() == [True] * 3 + [False] * 9 + [True] * 21


@torch.no_grad()
@pytest.mark.parametrize("attend", ["cells", "steps"])
def test_padding_changes_no_token(attend: Any) -> None:
    model = seeded(replace(SHAPE, attend=attend))
    parts = [PATCHES[:5], PATCHES[5:7], PATCHES[7:8]]
    values, lengths = padded(parts)
    assert lengths is not None
    together = model(torch.from_numpy(values).float(), torch.from_numpy(lengths))
    for row, part in zip(together, parts, strict=True):
        alone = model(torch.from_numpy(part[None]).float())[0]
        torch.testing.assert_close(row[: len(part)], alone, atol=1e-5, rtol=1e-5)
    assert padded([PATCHES[:5], PATCHES[5:10]])[1] is None


@torch.no_grad()
@pytest.mark.parametrize(
    ("positions", "steps_matter", "cells_matter"),
    [("none", False, False), ("temporal", True, False), ("spatiotemporal", True, True)],
)
def test_positions_tell_steps_and_cells_apart(
    positions: Any, steps_matter: bool, cells_matter: bool
) -> None:
    model = seeded(replace(SHAPE, positions=positions))
    window = torch.from_numpy(PATCHES[None, :5]).float()
    tokens = model(window)

    def moved(other: torch.Tensor) -> bool:
        return float((model(other) - tokens).abs().max()) > 1e-3

    assert moved(window.flip(1)) == steps_matter
    assert moved(window.flip(2)) == cells_matter


@pytest.mark.parametrize("positions", ["none", "spatiotemporal"])
@pytest.mark.parametrize("width", [SHAPE.width_in, 16])
def test_the_residual_stream_stays_float32_under_autocast(width: int, positions: Any) -> None:
    """On fake tensors, which need no processor with bf16."""
    pooler = ActionPooler(replace(SHAPE, width=width, positions=positions))
    found = set()
    for module in pooler.modules():
        if isinstance(module, SelfBlock | CrossBlock):
            module.register_forward_pre_hook(lambda _, x: found.update(v.dtype for v in x[:-1]))
    patches = torch.zeros(2, SHAPE.window, SHAPE.cells, SHAPE.width_in)
    with FakeTensorMode(allow_non_fake_inputs=True), torch.autocast("cpu", torch.bfloat16):
        pooler(patches)
    assert found == {torch.float32}


def test_a_train_take_gets_the_pooler_that_did_not_see_it(pooler: Pooler) -> None:
    main, other = pooler.tokens(PATCHES, take_id="new"), pooler.tokens(PATCHES, take_id="seen")
    np.testing.assert_array_equal(main, pooler.tokens(PATCHES))
    with torch.no_grad():
        alone = seeded(seed=1)(torch.from_numpy(PATCHES[None, :5]).float())[0].numpy()
    np.testing.assert_allclose(other[:5], (alone - 1)[:, ::-1] + 3, atol=1e-5)


def test_other_patches_and_windows_too_long_or_empty_are_refused(pooler: Pooler) -> None:
    for shape in ((5, 6, 7), (5, 48), (5, 5, 8)):
        with pytest.raises(InputError, match=r"expected patches \[steps, 6, 8\]"):
            pooler.tokens(np.zeros(shape, np.float16))
    for count in (0, 6):
        with pytest.raises(InputError, match="expected 1 to 5"):
            pooler.window_tokens(PATCHES[:count])


def test_a_damaged_folder_is_named(tmp_path: Path) -> None:
    stored(tmp_path)
    before = load_pooler(tmp_path).facts.sha256
    write_weights(tmp_path / MODEL, seeded(seed=5))
    assert load_pooler(tmp_path).facts.sha256 != before
    (tmp_path / MODEL).unlink()
    with pytest.raises(InputError, match=r"model.safetensors: no such file; run the stage"):
        load_pooler(tmp_path)
    write_json(tmp_path / CONFIG, {"kind": "action"})
    with pytest.raises(InputError, match=r"config.json: not a pooler of this version"):
        load_pooler(tmp_path)
    write_json(tmp_path / CONFIG, {"kind": "shipped"})
    with pytest.raises(InputError, match=r"came with its data set; no video can be turned"):
        load_pooler(tmp_path)
