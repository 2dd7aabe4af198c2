"""FACT survives odd takes and bad input, and learns."""

import re
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch.testing import assert_close

from pjepa.probes.fact.blocks import BlockOutput, Exchange
from pjepa.probes.fact.config import FactConfig
from pjepa.probes.fact.probe import Fact
from pjepa.ui.console import InputError
from tests.probes.fact_models import (
    CLASSES,
    OFFICIAL,
    SMALL,
    STRINGS,
    WIDTH,
    official,
    one_thread,
    small,
    some_take,
)

__all__ = ["one_thread"]


@pytest.mark.parametrize("match", ["o2o", "o2m"])
@pytest.mark.parametrize("blocks", STRINGS)
@pytest.mark.parametrize(
    "labels", [[2], [-1], [0, 0, 0], [-1, 3, -1, 3, 0], [5, -1], [-1] * 4, [0, 1, 2, 3, 4, 5]]
)
def test_odd_takes(labels: list[int], blocks: str, match: str) -> None:
    model = small(blocks=blocks, match=match, positions=True, time_masks=2, dropout=0.1)
    features = torch.randn(len(labels), WIDTH)
    loss = model.loss(model(features), torch.tensor(labels, dtype=torch.int32))
    loss.backward()
    assert loss.isfinite()
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(g.isfinite().all() for g in gradients)
    assert model.predict(features).shape == (len(labels), CLASSES)
    assert model.training


@pytest.mark.parametrize("background", [None, 0, 3])
@pytest.mark.parametrize("blocks", STRINGS)
def test_unknown_frames_are_ignored(blocks: str, background: int | None) -> None:
    model = small(background, blocks=blocks, tokens=20, smooth_weight=0.0)
    features, labels = some_take()
    labels[7:15] = -1
    outputs = model.eval()(features.float())
    for output in outputs:
        output.frame_logits.retain_grad()
    loss = model.loss(outputs, labels)
    loss.backward()
    for output in outputs:
        assert output.frame_logits.grad is not None
    assert (outputs[-1].frame_logits.grad[7:15] == 0).all()
    assert (outputs[-1].frame_logits.grad[:7] != 0).any(1).all()
    unlabelled = model.loss(model(features.float()), torch.full_like(labels, -1))
    assert unlabelled.item() == 0


def test_unknown_frames_do_not_count() -> None:
    model = small(blocks="iu", tokens=20, smooth_weight=0.0).double().eval()
    features, labels = some_take()
    outputs = model(features)
    part = labels.clone()
    part[30:] = -1
    cut = tuple(
        BlockOutput(
            output.frame_logits[:30], output.token_logits,
            output.exchange
            and Exchange(output.exchange.f2a[:, :30], output.exchange.a2f[:30]),
            output.frames[:30], output.tokens,
        )
        for output in outputs
    )  # fmt: skip
    assert_close(model.loss(outputs, part), model.loss(cut, labels[:30]))


def test_more_segments_than_tokens() -> None:
    labels = torch.arange(30) % CLASSES
    features = torch.randn(30, WIDTH)
    model = small()
    with pytest.raises(InputError, match=r"30 segments .* 12 action tokens; set .*tokens to 30"):
        model.loss(model(features), labels)
    many = small(match="o2m")
    assert many.loss(many(features), labels).isfinite()
    few = small(match="o2m", tokens=4)
    with pytest.raises(InputError, match=r"6 classes .* 4 action tokens"):
        few.loss(few(features), labels)
    grown = Fact(FactConfig(**SMALL).with_tokens_for(30), WIDTH, CLASSES, 0)
    assert grown.config.tokens == 30
    assert grown.loss(grown(features), labels).isfinite()
    assert FactConfig(**SMALL).with_tokens_for(3) == FactConfig(**SMALL)


def test_bad_input_is_one_line() -> None:
    model = small()
    outputs = model(torch.randn(4, WIDTH))
    wrong: list[tuple[str, Any]] = [
        ("expected [frames, 20]", lambda: model(torch.randn(4, 3))),
        ("at least one frame", lambda: model(torch.randn(0, WIDTH))),
        ("for 4 frames", lambda: model.loss(outputs, torch.zeros(5, dtype=torch.long))),
        ("for 6 classes", lambda: model.loss(outputs, torch.tensor([0, 1, 2, 6]))),
        ("-2 to 1", lambda: model.loss(outputs, torch.tensor([0, 1, 1, -2]))),
        ("hidden above 40", lambda: Fact(FactConfig(**SMALL), WIDTH, 40, 0)),
        ("diverged", lambda: model.loss(model(torch.full((4, WIDTH), torch.nan)), torch.arange(4))),
    ]
    for text, call in wrong:
        with pytest.raises(InputError, match=re.escape(text)) as error:
            call()
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "changes",
    [{"blocks": "UU"}, {"blocks": "i"}, {"blocks": "iUi"}, {"tokens": 20}, {"action_heads": 7},
     {"frame_norm": True}, {"hidden": 33}, {"action_dim": 1024}, {"ntoken": 3}],
)  # fmt: skip
def test_impossible_configs(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        FactConfig(**changes)
    with pytest.raises(ValidationError):
        FactConfig().tokens = 3  # type: ignore[misc]


def test_masking_hides_whole_channels_and_spans() -> None:
    model = small(channel_mask=0.5, time_masks=3, time_mask_frames=10, time_mask_share=0.2)
    x = torch.ones(50, WIDTH)
    seen = model.masked(x)
    assert (x == 1).all()
    frames = seen.any(1)
    assert 50 - 3 * 9 <= int(frames.sum()) <= 50
    assert (seen[frames] == seen[frames][0]).all()
    assert set(seen.unique().tolist()) <= {0.0, 2.0}
    assert torch.equal(model.eval()(x)[0].frame_logits, model(x)[0].frame_logits)


def test_layers_start_equal() -> None:
    model = small(blocks="iU", update_action_layers=2)
    for block in model.block_list:
        first, second = block.action_branch.layers
        assert all(map(torch.equal, first.parameters(), second.parameters()))


@pytest.mark.slow
@pytest.mark.parametrize("blocks", ["iU", "iu"])
def test_learns_and_repeats(blocks: str) -> None:
    centres = 2 * torch.randn(CLASSES, WIDTH)
    labels = torch.tensor([1, 3, 0, 5, 2, 3]).repeat_interleave(10)
    features = centres[labels] + 0.3 * torch.randn(60, WIDTH)

    def trained() -> Fact:
        torch.manual_seed(1)
        model = small(blocks=blocks, channel_mask=0.1)
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        for _ in range(80):
            optimizer.zero_grad()
            model.loss(model(features), labels).backward()
            optimizer.step()
        return model

    model, again = trained(), trained()
    assert (model.predict(features).argmax(1) == labels).float().mean() > 0.9
    assert all(map(torch.equal, model.parameters(), again.parameters()))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_cuda_equals_cpu() -> None:
    model = official()
    expected = model.loss(model(OFFICIAL["input"]), OFFICIAL["label"])
    model = model.cuda()
    found = model.loss(model(OFFICIAL["input"].cuda()), OFFICIAL["label"])
    assert_close(found.cpu(), expected, atol=1e-4, rtol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("frame", ["m", "m2"])
@pytest.mark.parametrize("blocks", STRINGS)
def test_takes_together_give_what_each_gives_alone(blocks: str, frame: str) -> None:
    """In one take all tokens are null here, in another none."""
    for seed, changes in enumerate(({}, {"positions": True, "segment_layers": 2})):
        torch.manual_seed(seed)
        model = small(blocks=blocks, frame=frame, **changes).double().eval()
        take, _ = some_take(90, seed)
        prefixes = [take[:end] for end in (1, 7, 40, 90, 90)]
        logits = torch.stack([model(prefix)[-1].token_logits for prefix in prefixes])  # [5, M, C+1]
        lead = (logits[..., :-1].amax(-1) - logits[..., -1]).amax(-1)  # [5] of a class over null
        last: Any = model.block_list[-1]
        last.action_branch.out_linear.bias[-1] += (lead.min() + lead.max()) / 2
        found = model.predict_together(prefixes)
        for row, prefix in zip(found, prefixes, strict=True):
            assert_close(row[: len(prefix)], model.predict(prefix))
