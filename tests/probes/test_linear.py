"""The converged fit is the optimum, the hold-out only chooses, and both fits are repeatable."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pjepa.probes.base.scoring import LabelledTake
from pjepa.probes.linear.config import LinearConfig, PaperFitConfig
from pjepa.probes.linear.probe import LinearProbe, fit_converged, fit_paper
from pjepa.ui.console import InputError

CLASSES, WIDTH = 5, 12
PAPER = PaperFitConfig(epochs=3, lr=1e-2)


def one_l2(l2: float, tolerance: float = 1e-6) -> LinearConfig:
    return LinearConfig(l2=(l2,), tolerance=tolerance)


def token_accuracy(probe: LinearProbe, takes: list[LabelledTake]) -> float:
    told = np.concatenate([probe.logits(take.features).argmax(1).numpy() for take in takes])
    labels = np.concatenate([take.labels for take in takes])
    return 100 * float((told == labels)[labels >= 0].mean())


def some_takes(count: int = 8, seed: int = 0, noise: float = 1.5) -> list[LabelledTake]:
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(CLASSES, WIDTH))
    mixing = np.random.default_rng(98).normal(size=(WIDTH, WIDTH))
    takes = []
    for _ in range(count):
        labels = np.repeat(random.integers(0, CLASSES, 10), 6)
        features = (centres[labels] + noise * random.normal(size=(60, WIDTH))) @ mixing + 3
        takes.append(LabelledTake(features.astype(np.float32), labels))
    return takes


@pytest.mark.parametrize("l2", [1e-1, 1e-3])
def test_equals_sklearn(l2: float) -> None:
    takes = some_takes()
    probe = fit_converged(takes, [], CLASSES, one_l2(l2))
    x = np.concatenate([take.features for take in takes]).astype(np.float64)
    y = np.concatenate([take.labels for take in takes])
    standard = (x - x.mean(0)) / x.std(0)
    reference = LogisticRegression(C=1 / (l2 * len(y)), tol=1e-8, max_iter=5000)
    expected = reference.fit(standard, y).predict_proba(standard)
    assert probe.details["converged"]
    np.testing.assert_allclose(probe.predict(x.astype(np.float32)), expected, atol=2e-4)
    np.testing.assert_allclose(probe.weight.numpy(), reference.coef_, atol=2e-3)


def test_holdout_only_chooses() -> None:
    takes, config = some_takes(), LinearConfig(l2=(1.0, 1e-1, 1e-2, 1e-3))
    probe = fit_converged(takes, some_takes(2, seed=5), CLASSES, config)
    by_l2 = {l2: fit_converged(takes, [], CLASSES, one_l2(l2, 1e-4)) for l2 in config.l2}
    seen = {probe.details["l2"]}
    for seed in range(6):  # scrambled hold-out labels may change the choice, never a fit
        random = np.random.default_rng(seed)
        scrambled = [
            LabelledTake(t.features, random.integers(0, CLASSES, 60)) for t in some_takes(2, seed=5)
        ]
        other = fit_converged(takes, scrambled, CLASSES, config)
        seen.add(other.details["l2"])
        assert torch.equal(other.mean, probe.mean)
        if other.details["l2"] == probe.details["l2"]:
            assert torch.equal(other.weight, probe.weight)
        alone = by_l2[other.details["l2"]]
        torch.testing.assert_close(other.weight, alone.weight, atol=2e-2, rtol=0)
    assert len(seen) > 1


def test_chooses_the_least_loss_and_prefers_stronger_on_ties() -> None:
    held, config = some_takes(2, 5), LinearConfig(l2=(1.0, 1e-1, 1e-2, 1e-3))
    probe = fit_converged(some_takes(), held, CLASSES, config)
    losses = probe.details["holdout_loss"]
    assert losses[f"{probe.details['l2']:g}"] == min(losses.values())
    logits = torch.cat([probe.logits(take.features) for take in held])
    labels = torch.from_numpy(np.concatenate([take.labels for take in held]))
    scaled = [float(cross_entropy(s * logits, labels)) for s in np.geomspace(0.1, 10, 2001)]
    assert min(losses.values()) == pytest.approx(min(scaled), rel=1e-4)
    unseen = [LabelledTake(some_takes(1)[0].features, np.full(60, CLASSES))]
    tied = fit_converged(some_takes(), unseen, CLASSES + 1, config)
    assert tied.details["l2"] == 1.0


@pytest.mark.parametrize("fit", ["converged", "paper"])
def test_unknown_labels_and_unseen_classes(fit: str) -> None:
    def fitted(takes: list[LabelledTake]) -> LinearProbe:
        if fit == "paper":
            return fit_paper(takes, CLASSES + 1, PAPER, seed=0)
        return fit_converged(takes, [], CLASSES + 1, one_l2(1e-2))

    known = some_takes()
    rubbish = np.full((4, WIDTH), 1e4, np.float32)
    padded = [
        LabelledTake(np.concatenate([rubbish, t.features]), np.append([-1] * 4, t.labels))
        for t in known
    ]
    plain, ignored = fitted(known), fitted(padded)
    assert torch.equal(plain.weight, ignored.weight)
    scores = plain.predict(np.concatenate([t.features for t in known]))
    assert scores.shape == (480, CLASSES + 1)
    assert (scores[:, CLASSES] == 0).all()
    assert token_accuracy(plain, padded) == token_accuracy(plain, known) > 30


def test_constant_channels_and_one_class() -> None:
    takes = [LabelledTake(np.full((20, 3), 7.1, np.float32), np.arange(20) % 2)]
    assert np.isfinite(fit_converged(takes, [], 2, one_l2(1e-3)).predict(takes[0].features)).all()
    alone = [LabelledTake(some_takes(1)[0].features, np.full(60, 3, np.int64))]
    probe = fit_converged(alone, [], CLASSES, one_l2(1e-3))
    assert (probe.predict(alone[0].features).argmax(1) == 3).all()


def test_paper_recipe_is_torch_adamw() -> None:
    """One take, one epoch: the first AdamW step moves every parameter by the learning rate."""
    take = some_takes(1)
    start = fit_paper(take, CLASSES, PaperFitConfig(epochs=1, lr=1e-12), seed=0)
    moved = fit_paper(take, CLASSES, PaperFitConfig(epochs=1, lr=1e-3), seed=0)
    step = (moved.weight - start.weight).abs()
    torch.testing.assert_close(step, torch.full_like(step, 1e-3), rtol=1e-2, atol=1e-6)


def test_bad_input_is_one_line() -> None:
    unknown = [LabelledTake(t.features, np.full(60, -1)) for t in some_takes(2)]
    with pytest.raises(InputError, match="no labelled train token"):
        fit_converged(unknown, [], CLASSES, one_l2(1e-2))
    with pytest.raises(InputError, match="no labelled train token"):
        fit_paper(unknown, CLASSES, PAPER, 0)
    with pytest.raises(InputError, match="held-out"):
        fit_converged(some_takes(), unknown, CLASSES, LinearConfig())


class Peak(TorchDispatchMode):
    """The most bytes of tensors that were alive at once, as far as they were made inside."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for x in tree_leaves(found):
            if isinstance(x, Tensor):
                storage = x.untyped_storage()
                self.alive[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.alive = {key: kept for key, kept in self.alive.items() if not kept[0].expired()}
        self.bytes = max(self.bytes, sum(size for _, size in self.alive.values()))
        return found


def test_a_million_tokens_fit_in_24_gb() -> None:
    """Of 1408 channels and 116 classes: bytes per token and channel, found on small ones."""
    config = LinearConfig(l2=(1e-2,), max_iterations=1)

    def peak(takes: int, width: int) -> int:
        features = np.random.default_rng(0).normal(size=(takes, 120, width)).astype(np.float32)
        labelled = [LabelledTake(take, np.arange(120) % 116) for take in features]
        with Peak() as found:
            fit_converged(labelled, [], 116, config)
        return found.bytes

    narrow, wide = ((peak(40, width) - peak(10, width)) / 3600 for width in (32, 64))
    per_channel = (wide - narrow) / 32
    assert 4 <= per_channel < 5  # one copy of the tokens
    assert 1e6 * (narrow + (1408 - 32) * per_channel) < 24e9
