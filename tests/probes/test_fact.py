"""FACT equals the official numbers, an obvious version of itself, and survives odd takes."""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from safetensors import safe_open
from torch import Tensor, nn
from torch.testing import assert_close

from benchmarks.probes_fact import plain_forward, plain_loss, plain_match
from pjepa.config.fact import PRESETS, FactConfig
from pjepa.errors import InputError
from pjepa.probes.fact import frame_branch
from pjepa.probes.fact.blocks import BlockOutput, Exchange, runs_of
from pjepa.probes.fact.frame_branch import conv3, dual_dilated
from pjepa.probes.fact.losses import block_loss, smoothness
from pjepa.probes.fact.matching import one_to_many, soft_iou, truth_of
from pjepa.probes.fact.merging import merged_probability
from pjepa.probes.fact.model import Fact, frame_positions
from pjepa.probes.fact.recurrent import gru_states

GOLDEN = Path(__file__).parents[1] / "golden" / "tas"
with safe_open(GOLDEN / "fact_iUUU_ego.safetensors", "pt") as file:
    INFO = json.loads(file.metadata()["info"])
    OFFICIAL = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
SMALL: dict[str, Any] = {
    "tokens": 12, "hidden": 32, "action_dim": 16, "frame_dim": 16, "action_heads": 4,
    "action_ffn": 24, "action_layers": 2, "frame_layers": 3, "update_frame_layers": 3,
    "null_weight": INFO["nullw"],
}  # fmt: skip
WIDTH, CLASSES = 20, 6
ROUNDING = 5e-5  # the official float32 numbers are themselves 3e-5 off the exact (float64) ones
STRINGS = ("iU", "iu", "iuU", "iUu")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


def small(background: int | None = 0, **changes: Any) -> Fact:
    return Fact(FactConfig(**{**SMALL, **changes}), WIDTH, CLASSES, background)


def official(**changes: Any) -> Fact:
    model = small(**changes)
    state = {k.removeprefix("state."): v for k, v in OFFICIAL.items() if k.startswith("state.")}
    model.load_state_dict(state)
    return model.eval()


def some_take(frames: int = 40, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Features and labels of segments of different lengths: equal ones could swap their tokens."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(CLASSES, (13,), generator=random).repeat_interleave(torch.arange(1, 14))
    features = torch.randn(frames, WIDTH, generator=random, dtype=torch.float64)
    return features, labels[-frames:]


# --- the official numbers -------------------------------------------------------------------------


@pytest.fixture(params=[4, 0], ids=["plain", "folded"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of computing a dual dilated layer."""
    monkeypatch.setattr(frame_branch, "FOLD_FROM", request.param)
    return "plain" if request.param else "folded"


def test_official_logits(path: str) -> None:
    tolerance = 2e-5 if path == "plain" else ROUNDING
    outputs = official()(OFFICIAL["input"])
    for index, output in enumerate(outputs):
        pairs = [("frame_clogit", output.frame_logits), ("action_clogit", output.token_logits)]
        pairs += [("frame_feature", output.frames), ("action_feature", output.tokens)]
        if output.exchange is not None:
            assert output.exchange.runs is not None
            assert output.exchange.runs.lengths.equal(OFFICIAL[f"block{index}.seg_lens"])
            pairs.append(("seg_clogit", output.exchange.logits))
        for name, ours in pairs:
            expected = OFFICIAL[f"block{index}.{name}"].squeeze(1)
            assert_close(ours, expected, atol=tolerance, rtol=0, msg=f"block {index} {name}")


def test_official_attention() -> None:
    for index, output in enumerate(official()(OFFICIAL["input"])):
        if output.exchange is None:
            continue
        for name, ours in (("f2a", output.exchange.f2a), ("a2f", output.exchange.a2f)):
            expected = OFFICIAL[f"block{index}.{name}_attn_logit"][0]
            assert_close(ours, expected, atol=ROUNDING, rtol=0, msg=f"block {index} {name}")
        expected = OFFICIAL[f"block{index}.a2f_attn"][0]
        assert_close(output.exchange.frame_attention(), expected, atol=2e-5, rtol=0)


def test_official_match_and_prediction(path: str) -> None:
    model = official()
    outputs = model(OFFICIAL["input"])
    truth = model.truth(outputs, OFFICIAL["label"])
    match = model.match(outputs, truth)
    assert match.token.equal(OFFICIAL["match_action_ind"])
    assert match.segment.equal(OFFICIAL["match_seg_ind"])
    assert outputs[-1].exchange is not None
    iou = soft_iou(outputs[-1].exchange, truth)
    assert_close(iou, OFFICIAL["cost_soft_iou"], atol=1e-5, rtol=0)
    assert_close(model.class_weight, OFFICIAL["cweight"])
    assert_close(model.class_weight[truth.classes], OFFICIAL["sweight"])
    probability = model.predict(OFFICIAL["input"])
    assert probability.argmax(1).equal(OFFICIAL["pred"])
    assert_close(probability.sum(1), torch.ones(len(probability)))


def test_official_losses_and_gradients(path: str) -> None:
    model = official()
    outputs = model(OFFICIAL["input"])
    terms = model.terms(outputs, model.truth(outputs, OFFICIAL["label"]))
    names = {"token": "action_token", "smooth": "smooth_frame"}
    for index, (found, expected) in enumerate(zip(terms, INFO["components"], strict=True)):
        assert {names.get(name, name) for name in found} == set(expected)
        for name, value in found.items():
            assert value.item() == pytest.approx(expected[names.get(name, name)], abs=1e-5)
        total = block_loss(found, model.config.smooth_weight).item()
        assert total == pytest.approx(INFO["block_losses"][index], abs=2e-5)
    loss = model.loss(outputs, OFFICIAL["label"])
    assert loss.item() == pytest.approx(INFO["loss"], abs=1e-5)
    loss.backward()
    for name, expected in OFFICIAL.items():
        if name.startswith("grad."):
            found = model.get_parameter(name.removeprefix("grad.")).grad
            assert_close(found, expected, atol=5e-5, rtol=1e-4, msg=name)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 10)
    assert norm.item() == pytest.approx(INFO["grad_total_norm"], rel=1e-4)


def test_official_training(path: str) -> None:
    model = official(channel_mask=0.0).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=model.config.lr)
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = model.loss(model(OFFICIAL["input"]), OFFICIAL["label"])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), model.config.clip_grad)
        optimizer.step()
        losses.append(loss.item())
    np.testing.assert_allclose(losses, OFFICIAL["train_losses"].numpy(), atol=1e-4, rtol=0)


def test_aligned_segment_weights() -> None:
    losses = {}
    for aligned, weight in itertools.product((False, True), (0.5, 1.0)):
        model = official(align_segment_weights=aligned, background_weight=weight)
        losses[aligned, weight] = model.loss(model(OFFICIAL["input"]), OFFICIAL["label"]).item()
    assert losses[False, 0.5] == pytest.approx(7.850430, abs=1e-5)
    assert losses[True, 0.5] == pytest.approx(7.948219, abs=1e-5)
    assert losses[False, 1.0] == losses[True, 1.0]


def test_official_smoothing_and_merging() -> None:
    golden = np.load(GOLDEN / "smooth_and_merge.npz")
    takes = torch.from_numpy(golden["smooth.logits_BCT"]).transpose(1, 2).requires_grad_()
    value = torch.stack([smoothness(logits) for logits in takes]).mean()
    value.backward()
    assert value.item() == pytest.approx(float(golden["smooth.fact_value"]), abs=1e-5)
    assert_close(takes.grad, torch.from_numpy(golden["smooth.fact_grad_BTC"]), atol=1e-6, rtol=1e-5)
    for case in ("merge0", "merge1", "merge2", "merge3"):
        part = {
            name: torch.from_numpy(golden[f"{case}.{name}"])
            for name in ("frame_clogit", "action_clogit", "a2f_attn")
        }
        a2f = part["a2f_attn"][0].log()
        output = BlockOutput(
            part["frame_clogit"][:, 0], part["action_clogit"][:, 0],
            Exchange(a2f.T, a2f), torch.empty(0), torch.empty(0),
        )  # fmt: skip
        merged = merged_probability(output, float(golden[f"{case}.weight"]))
        np.testing.assert_array_equal(merged.argmax(1).numpy(), golden[f"{case}.pred"])


def test_paper_size() -> None:
    with torch.device("meta"):
        model = Fact(PRESETS["official"], 2048, 116, 0)
    blocks = [sum(p.numel() for p in block.parameters()) for block in model.block_list]
    assert blocks == [11_569_920, *[9_783_808] * 3]
    assert model.action_query.numel() == 51_200
    assert PRESETS["paper"].null_weight_for(116) == pytest.approx(0.0096590, abs=1e-7)
    changed = PRESETS["paper"].model_dump().items() ^ PRESETS["official"].model_dump().items()
    assert {name for name, _ in changed} == {"epochs", "milestones"}


# --- an obvious version ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("frames", [1, 5, 40, 90])
def test_equals_plain_version(frames: int, seed: int) -> None:
    features, labels = some_take(frames, seed)
    model = small(blocks="iUU", tokens=20).double()
    outputs, plain = model.eval()(features), plain_forward(model, features)
    for ours, reference in zip(outputs, plain, strict=True):
        assert_close(ours.frame_logits, reference.frame_logits)
        assert_close(ours.token_logits, reference.token_logits)
    loss, reference_loss = model.loss(outputs, labels), plain_loss(model, plain, labels)
    if frames == 1:  # its smoothness is the mean of nothing there, 0 here
        assert loss.isfinite()
        return
    assert_close(loss, reference_loss)
    parameters = list(model.parameters())
    ours_grad = torch.autograd.grad(loss, parameters)
    plain_grad = torch.autograd.grad(reference_loss, parameters)
    for found, expected in zip(ours_grad, plain_grad, strict=True):
        assert_close(found, expected, atol=1e-9, rtol=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.integers(0, 5), st.integers(0, 5), st.integers(1, 6))
def test_folding_changes_nothing(frames: int, first: int, second: int, width: int) -> None:
    convs = (conv3(width, 2**first), conv3(width, 2**second), nn.Conv1d(2 * width, width, 1))
    parameters = [p for conv in convs for p in conv.double().parameters()]
    x = torch.randn(frames, width, dtype=torch.float64, requires_grad=True)
    chosen = torch.randn(frames, width, dtype=torch.float64)
    joined = torch.cat([conv(x.T[None]) for conv in convs[:2]], dim=1)
    expected = convs[2](joined)[0].T.relu()
    for fold_from in (0, 1000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(frame_branch, "FOLD_FROM", fold_from)
            found = dual_dilated(x, *convs)
        assert_close(found, expected)
        gradients = torch.autograd.grad((found * chosen).sum(), [x, *parameters])
        reference = torch.autograd.grad(
            (expected * chosen).sum(), [x, *parameters], retain_graph=True
        )
        for ours, plain in zip(gradients, reference, strict=True):
            assert_close(ours, plain, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("steps", [1, 2, 17])
def test_gru_equals_torch(steps: int, layers: int) -> None:
    gru = nn.GRU(8, 4, layers, bidirectional=True).double()
    x = torch.randn(steps, 8, dtype=torch.float64, requires_grad=True)
    chosen = torch.randn(steps, 8, dtype=torch.float64)
    found, expected = gru_states(gru, x), gru(x)[0]
    assert_close(found, expected)
    inputs = [x, *gru.parameters()]
    reference = torch.autograd.grad((expected * chosen).sum(), inputs)
    for ours, plain in zip(
        torch.autograd.grad((found * chosen).sum(), inputs), reference, strict=True
    ):
        assert_close(ours, plain)


@pytest.mark.parametrize("norm", [False, True])
def test_mstcn_branch(norm: bool) -> None:
    model = small(blocks="iu", frame="m", frame_norm=norm).double()
    branch: Any = model.block_list[0].frame_branch
    x, _ = some_take()
    f = branch.conv_1x1(x.T[None])
    for dilation, layer in zip((1, 2, 4), branch.layers, strict=True):
        assert layer.conv_dilated.dilation == (dilation,)
        f = f + layer.conv_1x1(layer.conv_dilated(f).relu())
        f = layer.norm(f.transpose(1, 2)).transpose(1, 2)
    assert_close(branch(x), branch.conv_out(f)[0].T)
    assert not any(
        name.startswith("conv_1x1") for name in model.block_list[1].frame_branch.state_dict()
    )


@pytest.mark.parametrize("positions", [False, True])
def test_update_block_by_hand(positions: bool) -> None:
    model = small(blocks="iu", positions=positions).double().eval()
    features, _ = some_take()
    first, second = model(features)
    block: Any = model.block_list[1]
    x, a, query = first.frames, first.tokens, model.action_query[:, 0]
    table = frame_positions(len(x), 32, x) if positions else torch.zeros_like(x)
    a_placed = a + torch.cat([query, torch.zeros(12, 16)], dim=1)
    f2a, a2f = block.f2a_layer, block.a2f_layer
    logits = f2a.Y_Q(a_placed) @ f2a.X_K(x + table).T / 32**0.5
    assert second.exchange is not None
    assert_close(second.exchange.f2a, logits)
    asked = f2a.Y_W(torch.cat([a, logits.softmax(1) @ f2a.X_V(x)], dim=1))
    layer = block.action_branch.layers[0]
    q = asked + query
    asked = layer.norm1(asked + layer.multihead_attn(q, q, asked)[0])
    asked = layer.norm2(asked + layer.linear2(layer.linear1(asked).relu()))
    a = block.action_branch.out_linear(asked)
    assert_close(second.token_logits, a[:, -7:])
    a = torch.cat([a[:, :-7], a[:, -7:].softmax(1)], dim=1)
    a_placed = a + torch.cat([query, torch.zeros(12, 16)], dim=1)
    logits = a2f.Y_Q(x + table) @ a2f.X_K(a_placed).T / 32**0.5
    assert_close(second.exchange.a2f, logits)
    x = a2f.Y_W(torch.cat([x, logits.softmax(1) @ a2f.X_V(a)], dim=1))
    assert_close(second.frame_logits, block.frame_branch(x)[:, -CLASSES:])


def test_update_block_losses_by_hand() -> None:
    model = small(blocks="iu", tokens=20).double().eval()
    features, labels = some_take()
    outputs = model(features)
    truth = model.truth(outputs, labels)
    match, exchange = model.match(outputs, truth), outputs[1].exchange
    assert exchange is not None
    terms = model.terms(outputs, truth)[1]
    by_token = exchange.f2a[match.token].log_softmax(1)  # [S, T]
    by_frame = exchange.a2f[:, match.token].log_softmax(1)  # [T, S]
    weights = model.class_weight[truth.classes]
    f2a = a2f = 0.0
    for t, column in itertools.product(range(len(labels)), range(len(match.token))):
        if truth.segment_of_frame[t] == match.segment[column]:
            f2a -= (weights[column] * by_token[column, t]).item() / len(labels)
            a2f -= (weights[column] * by_frame[t, column]).item() / len(labels)
    assert terms["f2a"].item() == pytest.approx(f2a)
    assert terms["a2f"].item() == pytest.approx(a2f)
    smooth = sum(
        (logits.log_softmax(1)[1:] - logits.log_softmax(1)[:-1]).square().clamp(max=16).mean()
        for logits in (outputs[1].frame_logits, exchange.a2f, exchange.f2a.T)
    )
    assert_close(terms["smooth"], smooth)
    total = terms["frame"] + terms["token"] + terms["f2a"] + terms["a2f"] + 5 * terms["smooth"]
    assert_close(block_loss(terms, 5.0), total)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(-1, 3), min_size=1, max_size=30), st.integers(1, 5), st.booleans())
def test_soft_iou_equals_dense(labels: list[int], tokens: int, by_runs: bool) -> None:
    truth = truth_of(torch.tensor(labels))
    runs = runs_of(torch.randint(2, (len(labels),))) if by_runs else None
    a2f = torch.randn(len(labels) if runs is None else len(runs.lengths), tokens)
    exchange = Exchange(a2f.T, a2f, runs)
    known = truth.segment_of_frame >= 0
    attention = exchange.frame_attention()[known, :, None]  # [T, M, 1]
    inside = truth.segment_of_frame[known, None] == torch.arange(len(truth.classes))
    dense = (attention * inside[:, None]).sum(0) / (attention + inside[:, None]).clamp(max=1).sum(0)
    assert_close(soft_iou(exchange, truth), dense)


def test_match_equals_dense() -> None:
    features, labels = some_take(90)
    model = small(tokens=20).double().eval()
    outputs, plain = model(features), plain_forward(model, features)
    truth = truth_of(labels)
    match = model.match(outputs, truth)
    inside = nn.functional.one_hot(truth.segment_of_frame).double()
    tokens, segments = plain_match(model.config, plain[-1], inside, truth.classes)
    assert match.token.tolist() == tokens.tolist()
    assert match.segment.tolist() == segments.tolist()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.integers(4, 9), st.integers(0, 99))
def test_one_to_many_serves_every_segment(names: list[int], tokens: int, seed: int) -> None:
    cost = np.random.default_rng(seed).normal(size=(tokens, len(names))).astype(np.float32)
    classes = np.array(names)
    token, segment = one_to_many(cost, classes)
    assert sorted(segment) == list(range(len(names)))
    assert [(names[s], s) for s in segment] == sorted((names[s], s) for s in segment)
    assert len({(t, names[s]) for t, s in zip(token, segment, strict=True)}) == len(set(token))
    own: dict[int, set[int]] = {}  # with one class only, every segment has the whole choice
    for t, s in zip(token, segment, strict=True):
        own.setdefault(names[s], set()).add(t)
    for t, s in zip(token, segment, strict=True):
        assert all(cost[t, s] <= cost[other, s] for other in own[names[s]])
    if len(own) == 1:
        np.testing.assert_array_equal(token, cost.argmin(0)[segment])


def test_positions() -> None:
    table = frame_positions(12_000, 8, torch.zeros(1))
    for t, pair in ((0, 0), (3, 1), (11_999, 3)):
        angle = np.float32(t) * 10000 ** (-2 * pair / 8)
        assert table[t, 2 * pair].item() == pytest.approx(np.sin(angle), abs=1e-3)
        assert table[t, 2 * pair + 1].item() == pytest.approx(np.cos(angle), abs=1e-3)
    runs = runs_of(torch.tensor([1, 1, 1, 2, 2, 0]))
    assert runs.middles().tolist() == [1, 3, 5]


# --- odd takes and bad input ----------------------------------------------------------------------


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


# --- training -------------------------------------------------------------------------------------


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
